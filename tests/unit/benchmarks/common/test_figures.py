import json

import pytest

from benchmarks.common.figures import draw_loss_curves
from benchmarks.common.report import median_runs


def run(name, seconds, seed=0, which="imdb"):
    last = 2.0 if seconds is None else seconds
    curve = [[0.0, 0.69], [last / 2, 0.4], [last, 0.28]]
    return {"set": which, "name": name, "seed": seed, "seconds": seconds, "curve": curve}


def test_the_median_run_of_a_set_is_in_the_middle_with_late_ones_last():
    runs = [run("pytorch", seconds) for seconds in (None, 1.0, 3.0)]
    found = median_runs([*runs, run("hogbatch", 2.0), run("pytorch", 9.0, which="w8a")], "imdb")
    assert {name: each["seconds"] for name, each in found.items()} == {"pytorch": 3, "hogbatch": 2}


@pytest.mark.parametrize("sets", [("imdb",), ("imdb", "w8a", "a", "b", "c")])
def test_results_read_back_from_json_become_a_small_file(sets, tmp_path):
    pytest.importorskip("matplotlib")
    results = {"about": {"targets": dict.fromkeys(sets, 0.28)}, "runs": []}
    for which in sets:
        results["runs"] += [run("hogbatch", 1.0, which=which), run("pytorch", None, which=which)]
    path = tmp_path / "curves.svg"
    draw_loss_curves(json.loads(json.dumps(results)), path)
    assert path.read_text().startswith("<?xml")
    assert path.stat().st_size < 200_000
