from benchmarks.rehearsals.cell import Cell
from benchmarks.rehearsals.methods import Method
from benchmarks.rehearsals.schedule import limit
from tests.support.rehearsed_cells import SERVER, matrix, result, run, wanted


def test_a_cell_lasts_at_most_a_multiple_of_the_best_device_alone(tmp_path, calls):
    made, chosen = matrix(tmp_path, within=0.5, jobs=1), wanted()
    cell = Cell("w8a", SERVER, Method("adaptive", "adaptive", ()), 0)
    alone = [result("gpu-512", 3.0, 1.0), result("cpu", 2.0, 1.0), result("cpu-64", None, 0.1)]
    assert limit(alone, cell, 5.0) == 10.0
    assert limit([*alone, result("hogbatch", 1.0, 1.0)], cell, 5.0) == 10.0
    assert limit([result("cpu", 1.0) | {"server": "other"}], cell, 5.0) is None
    _, shown = run(made, chosen)
    assert [each["max_seconds"] is None for each in shown] == [True, *[False] * 4]
    slow = next(each for each in shown if each["method"] == "cpu")
    assert slow["reached"] == {"early": None, "late": None}
    assert any("--max-seconds" in call for call in calls())
