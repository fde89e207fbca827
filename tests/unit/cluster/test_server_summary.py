"""Files that a server writes about its part of a run."""

import json

from hogbatch.cluster.server import write_summary
from hogbatch.coordinator.commands import Finish
from hogbatch.events.records import Faults, RunTotals

TOTALS = RunTotals(seconds=2.0, epochs=1.0, rows=300, workers=[], faults=Faults())


def test_a_server_writes_a_summary_or_one_sentence_why_it_cannot(tmp_path, capsys):
    write_summary(tmp_path, Finish("finished", "epochs"), TOTALS)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert (written["status"], written["rows"], written["train_seconds"]) == ("finished", 300, 2.0)
    write_summary(tmp_path / "gone", Finish("finished"), TOTALS)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hogbatch server: cannot write the summary: ")
