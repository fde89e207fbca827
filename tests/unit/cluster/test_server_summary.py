"""Files that a server writes about its part of a run."""

import json

from hogbatch.cluster.platform import _write
from hogbatch.cluster.server import write_results
from hogbatch.cluster.server_figures import FIGURES_FILE
from hogbatch.coordinator.commands import Finish
from hogbatch.events.records import Faults, RunTotals
from hogbatch.views.console import PlainConsole
from hogbatch.wire.codec import decode_to_coordinator
from hogbatch.wire.messages import ServerWorkers
from tests.support.wire_messages import SERVER_WORKER

FIGURES = ServerWorkers((SERVER_WORKER,))
TOTALS = RunTotals(seconds=2.0, epochs=1.0, rows=300, workers=[], faults=Faults())


def test_a_server_writes_a_summary_or_one_sentence_why_it_cannot(tmp_path, capsys):
    write_results(tmp_path, Finish("finished", "epochs"), TOTALS, FIGURES)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert decode_to_coordinator((tmp_path / FIGURES_FILE).read_bytes()) == FIGURES
    assert (written["status"], written["rows"], written["train_seconds"]) == ("finished", 300, 2.0)
    write_results(tmp_path / "gone", Finish("finished"), TOTALS, FIGURES)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hogbatch server: cannot write the summary: ")


def test_files_of_a_server_that_cannot_be_written_do_not_end_the_run(tmp_path, capsys):
    files = {"summary.json": b"{}", FIGURES_FILE: b"x"}
    _write(tmp_path / "server-0", files, PlainConsole(quiet=False))
    assert [path.name for path in (tmp_path / "server-0").iterdir()] == ["summary.json"]
    (tmp_path / "server-1").touch()
    _write(tmp_path / "server-1", files, PlainConsole(quiet=False))
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"cannot write the files of a server to {tmp_path}/server-1: File exists"
