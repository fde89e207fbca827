import pytest

from benchmarks.rehearsals.cell import Cell
from benchmarks.rehearsals.forecast import forecast
from benchmarks.rehearsals.methods import Method
from benchmarks.rehearsals.schedule import expected_wall_s, limit, ordered
from tests.support.rehearsed_cells import SERVER, matrix, result, run, wanted


def test_cheap_sets_and_devices_alone_and_the_first_seed_come_first():
    chosen = [*wanted((1, 0), "covtype"), *reversed(wanted((0,), "imdb"))]
    found = ordered(chosen)
    assert [cell.set_name for cell in found[:5]] == ["imdb"] * 5
    assert [cell.method.alone for cell in found[:5]] == [True, True, True, False, False]
    assert [cell.seed for cell in found] == [0] * 10 + [1] * 5


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


def test_the_expected_time_is_that_of_similar_cells():
    cell = Cell("w8a", SERVER, Method("adaptive", "adaptive", ()), 0)
    assert expected_wall_s([], cell) == cell.rough_wall_s
    other = result("cpu") | {"set": "imdb", "wall_s": 10.0, "rough_wall_s": 5.0}
    assert expected_wall_s([other], cell) == 2 * cell.rough_wall_s
    assert expected_wall_s([other, result("cpu", wall_s=7.0)], cell) == 7.0
    same = result("adaptive", wall_s=9.0)
    assert expected_wall_s([other, result("cpu", wall_s=7.0), same], cell) == 9.0


def test_the_forecast_counts_rows_and_slower_rehearsals():
    def cell(name, on_gpu, which="citeulike"):
        return Cell(which, SERVER, Method(name, name.partition("-")[0], (), on_gpu), 0)

    # 4 epochs of 20,755 rows, which end at no target
    assert cell("gpu-512", True).rough_wall_s == cell("gpu-512", True).most_s
    assert cell("gpu-512", True).rough_wall_s == pytest.approx(4 + 83_020 / 5e3)
    assert cell("cpu", False).rough_wall_s == pytest.approx(4 + 83_020 / 20e3)
    assert cell("gpu-8192", True).rough_wall_s == pytest.approx(4 + 83_020 / 2.5e3)
    # half of the 6 epochs of 464,810 rows
    assert cell("cpu", False, "covtype").rough_wall_s == pytest.approx(4 + 3 * 464_810 / 50e3)
    shown = forecast([cell("cpu", False), cell("gpu-512", True)], jobs=2)
    assert "| citeulike on fake | 2 | 0.2 | 0.2 | cpu gpu-512 |" in shown
    assert shown.endswith("2 cells, about 0.2 min, at most 0.2 min")
