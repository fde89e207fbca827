import json
import sys

import pytest

from benchmarks.rehearsals import cell as cells
from benchmarks.rehearsals.cell import InterruptedCell
from benchmarks.rehearsals.methods import batch_of
from tests.support import fake_rehearsal
from tests.support.rehearsed_cells import matrix, run, wanted


def test_every_cell_has_a_file_with_its_targets_series_and_devices(tmp_path):
    left, shown = run(matrix(tmp_path), wanted())
    assert left == [] and len(shown) == 5
    found = json.loads((tmp_path / "cells" / "a9a--fake--adaptive--0.json").read_text())
    assert found["error"] is None and found["rehearsed"]["server"] == "fake"
    # 5,000 rows/s and a loss of 0.8 / (1 + rows / 10,000), interpolated within half seconds
    assert found["reached"]["early"]["seconds"] == pytest.approx(2.444, abs=0.03)
    assert found["reached"]["late"]["rows"] == pytest.approx(14_242, rel=0.01)
    assert found["utilization"]["gpu"][:2] == [[0.25, 0.5], [0.75, 0.5]]


def test_only_cells_without_a_whole_and_current_result_run_again(tmp_path, calls, monkeypatch):
    _, [first, *_] = run(matrix(tmp_path), wanted())
    again = matrix(tmp_path)
    assert again.load(wanted()) == [] and len(again.results) == 5
    path = tmp_path / "cells" / f"a9a--fake--{first['method']}--0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"reached": {"late": None}}))
    again = matrix(tmp_path)
    assert again.load(wanted()) == []  # the moments are computed from the stored history
    (found,) = [r["reached"] for r in again.results if r["method"] == first["method"]]
    assert found == first["reached"]
    path.write_text(path.read_text()[:40])
    assert [cell.method.name for cell in matrix(tmp_path).load(wanted())] == [first["method"]]
    assert len(calls()) == 5
    for changed in ("digest", "source_key"):
        with monkeypatch.context() as patch:
            patch.setattr(cells, changed, lambda *given: "2")
            assert len(matrix(tmp_path).load(wanted())) == 5
    monkeypatch.setattr(cells, "source_key", lambda: "2")
    left = matrix(tmp_path).load(wanted(), ["sources"])  # those with fixed batches can be used
    expected = {m.method.name for m in wanted() if not batch_of(m.method.name)}
    assert {cell.method.name for cell in left} == expected | {first["method"]}


def test_a_cell_that_crashes_is_recorded_and_the_others_go_on(tmp_path, calls):
    seeds = (0, fake_rehearsal.FAILING_SEED)
    left, shown = run(matrix(tmp_path), wanted(seeds))
    assert left == [] and len(shown) == 10
    failed = [each for each in shown if each["error"]]
    assert {each["seed"] for each in failed} == {fake_rehearsal.FAILING_SEED}
    assert all(each["error"].endswith("ValueError: no rows") for each in failed)
    assert matrix(tmp_path).load(wanted(seeds)) == []
    assert len(matrix(tmp_path, retry=True).load(wanted(seeds))) == 5
    assert len(calls()) == 10


def test_a_cell_that_hangs_is_killed_and_recorded(tmp_path):
    made = matrix(tmp_path, cell_s=0.2)
    made.program = (sys.executable, "-c", "import time; time.sleep(60)")
    _, shown = run(made, wanted()[:1])
    assert shown[0]["error"] == "exit code -9: killed after 0.2 s"


def test_a_result_that_cannot_be_read_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "outcome", lambda *given: {}["history"])
    _, shown = run(matrix(tmp_path), wanted()[:1])
    assert shown[0]["error"] == "its results cannot be read: KeyError('history')"


def test_a_cell_that_was_stopped_from_outside_has_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(
        cells.hogbatch_run,
        "execute",
        lambda *given, **other: cells.hogbatch_run.TrainResult(0, "", 1.0, {"status": "stopped"}),
    )
    with pytest.raises(InterruptedCell):
        run(matrix(tmp_path), wanted())
    assert list((tmp_path / "cells").iterdir()) == []
