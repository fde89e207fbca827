import pytest

from benchmarks.rehearsals.figures import curves, draw_all
from benchmarks.rehearsals.table import table
from tests.support.rehearsed_cells import matrix, result, run, wanted


def test_the_table_has_one_row_for_each_set_server_and_target():
    runs = [
        result("cpu", 4.0, 2.0),
        result("cpu-64", 3.0, 1.5),
        result("gpu-256", 2.0, 1.0),
        result("gpu-512", None, 0.5),
        result("hogbatch", None, None),
        result("adaptive", 1.0, 0.5, rows=2_500_000),
    ]
    assert table(runs).splitlines()[2:] == [
        "| w8a, 0.05 | fake | 2 s, 10k rows | 1.5 s, 10k rows (64) | - | 0.5 s, 10k rows (512) | "
        "- | not in 9 s | 0.5 s, 2.5M rows | > 18.00 | 1.00 |",
        "| w8a, 0.042 | fake | 4 s, 10k rows | 3 s, 10k rows (64) | - | 2 s, 10k rows (256) | "
        "- | not in 9 s | 1 s, 2.5M rows | > 4.50 | 0.50 |",
    ]


def test_failed_and_missing_methods_are_shown_as_such():
    runs = [result("cpu", 4.0, 2.0), result("gpu-512", error="boom")]
    row = table(runs).splitlines()[-1].split(" | ")
    mark = "- (gpu failed)"
    assert row[3:] == ["-", "-", "failed", "-", "-", "-", mark, f"{mark} |"]


def test_figures_are_drawn_for_each_place(tmp_path):
    pytest.importorskip("matplotlib")
    made = matrix(tmp_path)
    run(made, wanted())
    chosen = curves(made.results)
    assert list(chosen) == ["cpu", "cpu fixed", "gpu fixed", "hogbatch", "adaptive"]
    [path] = draw_all(made.results, tmp_path)
    text = path.read_text()
    assert path.name == "a9a--fake.svg"
    assert "a9a on fake, rehearsed" in text
