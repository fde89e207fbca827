import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

import benchmarks.slide.__main__ as slide
from benchmarks.common.hogbatch_run import TrainResult
from benchmarks.peers import WIDE, peer
from benchmarks.peers.contract import Problem, Rows
from benchmarks.slide.table import arrival, summarised, table


@pytest.fixture
def planted():
    """Rows of 50 labels with one feature each, which a row has beside some noise."""
    random = np.random.default_rng(0)
    y = csr_array((random.random((640, 50)) < 0.05).astype(np.float32))
    x = csr_array(y + 0.1 * (random.random((640, 50)) < 0.05).astype(np.float32))
    train, test = (Rows(x[part], y[part]) for part in (slice(512), slice(512, 640)))
    return Problem("multilabel-softmax", (16,), 50, train, test)


@pytest.mark.parametrize("law", ["uniform", "log-uniform"])
def test_chances_are_how_often_labels_are_active(law):
    from benchmarks.peers.pytorch_sampled import Sampler

    random = np.random.default_rng(0)
    y = csr_array((random.random((4000, 12)) < np.linspace(0.2, 0.01, 12)).astype(np.float32))
    rows = Rows(csr_array((4000, 1), dtype=np.float32), y)
    setting = {"sample": 4, "batch": 5, "law": law}
    sampler, times = Sampler(rows, 12, setting, 0), np.zeros(12)
    draws = 2000
    for _ in range(draws):
        true = y[random.integers(4000, size=5)].indices
        active, places = sampler.active(true)
        assert np.array_equal(active[places], true)
        times[active] += 1
    error = np.sqrt(sampler.probability * (1 - sampler.probability) / draws)
    assert np.all(np.abs(times / draws - sampler.probability) < 4 * error)


def test_results_are_metrics_after_the_start_and_the_mean_of_active_outputs(monkeypatch, tmp_path):
    def worker(name, updates, active):
        made = {"name": name, "threads": 2, "batch_size": 64}
        return made | {"updates": updates, "active": active}

    summary = {
        "rows": 500,
        "history": [
            {"seconds": 0.0, "test_values": {}},
            {"seconds": 2.0, "test_values": {"P@1": 0.4, "P@3": 0.3, "P@5": 0.2}},
        ],
        "workers": [worker("a", 30, 50.0), worker("b", 10, 10.0), worker("gpu:host", 99, None)],
    }
    done = TrainResult(0, "", 1.0, summary)
    monkeypatch.setattr(slide.hogbatch_run, "train", lambda command: done)
    task = slide.XmcFiles("small", tmp_path / "train.xmc", tmp_path / "test.xmc")
    found = slide.train_ours(task, 1000, "lsh", 3, SimpleNamespace(flags=[], seconds=9.0))
    assert found["curve"] == [[2.0, 0.4, 0.3, 0.2]] and found["rows"] == 500
    assert found["active"] == 0.04


def run(name, *curve, rows=1000):
    return {"name": name, **summarised({"rows": rows, "curve": list(curve)}, [0.5, 0.55])}


def test_a_run_is_summarised_by_its_best():
    found = run("lsh", [0, 0, 0, 0], [2.0, 0.51, 0.4, 0.3], [4.0, 0.49, 0.5, 0.3])
    assert found["seconds"] == {"0.5": 2.0, "0.55": None}
    assert found["best"] == {"P@1": 0.51, "P@3": 0.4, "P@5": 0.3}
    assert found["rows_per_s"] == 250
    assert arrival(found["curve"], 0.51) == 2.0


def test_the_table_compares_with_the_best_peer():
    runs = [
        run("lsh", [1.0, 0.5, 0.4, 0.3], [2.0, 0.56, 0.4, 0.3]) | {"active": 0.025},
        run("dense", [10.0, 0.4, 0.3, 0.2]),
        run("pytorch-full", [20.0, 0.5, 0.4, 0.3], [40.0, 0.56, 0.4, 0.3]),
        run("pytorch-sampled", [4.0, 0.51, 0.4, 0.3]),
        {"name": "pytorch-new", "error": "none", "rows": 0, "curve": []},
    ]
    assert table(runs, [0.5, 0.55]).splitlines()[2:] == [
        "| lsh | 500 | 2.50% | 1 | 2 | 0.560 | 0.400 | 0.300 | 0.25 | 0.05 |",
        "| dense | 100 | - | not met | not met | 0.400 | 0.300 | 0.200 | - | - |",
        "| pytorch-full | 25 | - | 20 | 40 | 0.560 | 0.400 | 0.300 | 5.00 | 1.00 |",
        "| pytorch-sampled | 250 | - | 4 | not met | 0.510 | 0.400 | 0.300 | 1.00 | - |",
        "| pytorch-new | failed | - | - | - | - | - | - | - | - |",
    ]


def test_a_median_takes_a_run_that_did_not_arrive_as_endless():
    arrived, not_arrived = run("lsh", [1.0, 0.6, 0, 0]), run("lsh", [1.0, 0.1, 0, 0])
    assert "| not met |" in table([arrived, not_arrived, not_arrived], [0.5])
    assert "| not met |" not in table([arrived, arrived, not_arrived], [0.5])


def test_settings_kept_in_the_project_come_out_of_the_grids(planted):
    tuned = slide.SETTINGS.read()
    assert set(tuned["citeulike"]) == set(WIDE)
    for which, found in tuned.items():
        for name, entry in found.items():
            assert entry["setting"] in peer(name).grid(planted), (which, name)
    assert [peer(name).name for name in WIDE] == list(WIDE)
    for name in WIDE:
        grid = [json.dumps(setting, sort_keys=True) for setting in peer(name).grid(planted)]
        assert len(set(grid)) == len(grid) > 0
