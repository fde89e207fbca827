import json
from dataclasses import replace

import pytest

import benchmarks.rehearsals.__main__ as program
from benchmarks.common import generated
from benchmarks.common.servers import Processors
from benchmarks.rehearsals import cell as cells
from benchmarks.rehearsals.sets import SETS
from benchmarks.rehearsals.useful import LEAST, useful_range
from tests.support import fake_rehearsal
from tests.support.rehearsed_cells import BOTH, FAKE, SERVER


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The program with the fake command and one server; a function of more flags."""
    monkeypatch.setattr(program, "bundled_names", lambda: [SERVER])
    monkeypatch.setattr(Processors, "of", lambda server: BOTH)
    monkeypatch.setattr(program, "members_of_teams", lambda set_name, server, data: 1)
    return lambda *more: program.main(["--quick", "--out", str(tmp_path / "out"), *more], FAKE)


def test_the_program_writes_cells_json_table_and_figures(tmp_path, quick):
    assert quick() == 0
    out = tmp_path / "out"
    assert len(list((out / "cells").iterdir())) == 5
    found = json.loads((out / "matrix.json").read_text())
    assert [entry["target"] for entry in found["results"]] == ["early", "late"]
    assert (out / "matrix.md").read_text().count("| a9a, ") == 2


def test_a_report_runs_nothing_and_names_the_sources_of_its_cells(
    tmp_path, quick, calls, monkeypatch
):
    out = tmp_path / "out"

    def sources():
        return json.loads((out / "matrix.json").read_text())["about"]["sources"]

    monkeypatch.setattr(cells, "source_key", lambda: "old")
    assert quick("--report") == 1  # nothing has run, so that all cells are missing
    quick("--methods", "cpu,gpu")
    assert sources() == ["old"] and "versions" not in (out / "matrix.md").read_text()
    monkeypatch.setattr(cells, "source_key", lambda: "new")
    quick("--methods", "adaptive")
    assert len(calls()) == 4
    assert quick("--methods", "cpu,gpu,adaptive", "--report") == 0  # also of cells to run again
    assert sources() == ["new", "old"] and len(calls()) == 4
    assert "several versions of the sources: new, old." in (out / "matrix.md").read_text()


def test_a_failed_cell_is_in_the_report_and_in_the_exit_code(tmp_path, quick):
    assert quick("--seeds", f"{fake_rehearsal.FAILING_SEED + 1}", "--methods", "adaptive") == 1
    last = "adaptive, seed 13: ValueError: no rows"
    assert last in (tmp_path / "out" / "matrix.md").read_text()


def test_useful_batches_of_a_generated_table_follow_from_its_encoded_rows(monkeypatch, tmp_path):
    pytest.importorskip("pandas")
    monkeypatch.setattr(generated, "cache_root", lambda: tmp_path)
    found = SETS["clicks"]
    case = replace(found.case, task=replace(found.case.task, rows=500))
    monkeypatch.setitem(SETS, "clicks", replace(found, case=case))
    useful = useful_range("clicks", "h100-16cores", tmp_path)
    assert LEAST <= useful.low < useful.high
    assert [path.name for path in (tmp_path / "benchmarks").iterdir()] == ["clicks-500.csv"]
