"""A small matrix of real rehearsals on the bundled sample, as a user runs it."""

import json

import pytest

from benchmarks.rehearsals.__main__ import main

SERVER = "h100-16cores"


@pytest.fixture
def matrix(tmp_path):
    """Run the small matrix in a directory of that name; return its cells by method."""

    def run(name, *flags):
        out = tmp_path / name
        assert main(["--quick", "--servers", SERVER, "--out", str(out), *flags]) == 0
        found = [json.loads(path.read_text()) for path in (out / "cells").iterdir()]
        return {cell["method"]: cell for cell in found}

    return run


def without_real_time(cell):
    """What must not depend on the speed of this machine."""
    return {key: value for key, value in cell.items() if key != "wall_s"}


def test_a_small_matrix_of_rehearsals(matrix, tmp_path):
    cells = matrix("first")
    assert set(cells) == {"cpu", "cpu-256", "gpu-256", "hogbatch", "adaptive"}
    for cell in cells.values():
        assert cell["rehearsed"] == SERVER and cell["error"] is None
        assert cell["history"] and cell["train_seconds"] > 0
    devices = cells["hogbatch"]["devices"]  # this policy parks nobody
    assert devices["cpu"]["updates"] and devices["gpu"]["updates"]
    assert devices["cpu"]["share"] + devices["gpu"]["share"] == pytest.approx(1)
    for series in cells["hogbatch"]["utilization"].values():
        assert 0.02 < max(height for _, height in series) < 2
    entries = json.loads((tmp_path / "first" / "matrix.json").read_text())["results"]
    assert entries[0]["better_alone"] in ("cpu", "cpu-256", "gpu-256")
    assert entries[0]["factors"]["adaptive"]["value"] > 0


def test_cells_with_one_seed_are_equal(matrix):
    first, second = (matrix(name, "--methods", "adaptive") for name in ("first", "second"))
    assert without_real_time(first["adaptive"]) == without_real_time(second["adaptive"])
