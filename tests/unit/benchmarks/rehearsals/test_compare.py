import json

import pytest

from benchmarks.rehearsals.compare import best_of, comparison, failed_alone, timing
from benchmarks.rehearsals.outcome import outcome, utilization
from benchmarks.rehearsals.sets import SETS
from benchmarks.rehearsals.table import timing_cell
from tests.support import fake_rehearsal
from tests.support.rehearsed_cells import result


def test_the_best_batch_is_chosen_for_each_target_by_medians_of_seeds():
    runs = [result("gpu-512", late, 1.0, seed=n) for n, late in enumerate((3.0, 9.0, 3.1))]
    runs += [result("gpu-256", late, 0.5, seed=n) for n, late in enumerate((1.0, 5.0, 5.1))]
    late, early = best_of(runs, ["gpu"], "late"), best_of(runs, ["gpu"], "early")
    assert late and (late.method, late.seconds) == ("gpu-512", 3.1)
    assert early and early.method == "gpu-256"


def test_seeds_that_do_not_reach_the_target_count_as_infinite():
    runs = [result("cpu", late, seed=n) for n, late in enumerate((3.0, None, None))]
    found = timing(runs, "cpu", "late")
    assert found and not found.reached and timing_cell(found) == "not in 9 s"
    assert timing(runs, "gpu-512", "late") is None


@pytest.mark.parametrize(
    ("alone", "both", "factors"),
    [
        ((4.0, 2.0), 3.0, {"adaptive": {"bound": "=", "value": 1.5}}),
        ((4.0, 2.0), None, {"adaptive": {"bound": ">", "value": 4.5}}),
        ((None, None), 3.0, {"adaptive": {"bound": "<", "value": 0.5}}),  # of 40 s and 6 s
        ((None, None), None, {"adaptive": {"bound": "?", "value": None}}),
    ],
)
def test_the_factor_is_over_the_better_device_or_a_bound(alone, both, factors):
    gpu, cpu = alone
    runs = [result("gpu-512", gpu, train_seconds=40.0), result("cpu", cpu, train_seconds=6.0)]
    found = comparison([*runs, result("adaptive", both), result("hogbatch", error="boom")], "late")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["factors"] == factors


def test_without_any_whole_run_of_a_kind_there_is_no_factor():
    runs = [result("cpu", 2.0), result("gpu-512", error="killed"), result("adaptive", 1.0)]
    found = comparison(runs, "late")
    assert found["failed_alone"] == ["gpu"] == failed_alone(runs)
    assert found["factors"] == {} and found["better_alone"] is None
    whole = [*runs, result("gpu-256", 3.0)]
    assert comparison(whole, "late")["factors"]["adaptive"]["value"] == 0.5


def test_utilization_is_the_mean_of_the_workers_on_a_device_between_evaluations():
    workers = [{"name": f"gpu-{n}", "device": "gpu"} for n in range(2)]
    workers.append({"name": "cpu-0", "device": "cpu"})
    measured = [
        (1.0, {"gpu-0": 0.4, "cpu-0": 0.9}),
        (2.0, {"cpu-0": 0.8}),
        (4.0, {"gpu-0": 0.5, "gpu-1": 0.7}),
    ]
    history = [{"seconds": at, "utilization": found} for at, found in measured]
    assert utilization(workers, history, "gpu") == [[0.5, 0.4], [3.0, 0.6]]
    assert utilization(workers, history, "cpu") == [[0.5, 0.9], [1.5, 0.8]]


def test_the_outcome_has_totals_of_devices_and_what_was_reached():
    worker = fake_rehearsal.worker("gpu", 10, 10)
    point = {"seconds": 8.0, "epochs": 1.0, "rows": 9, "test_loss": 0.5, "test_values": {}}
    history = [point | {"utilization": {"gpu-0": 0.25}}]
    summary = {"status": "time", "train_seconds": 8.0, "rows": 9, "history": history}
    found = outcome(SETS["w8a"], summary | {"workers": [worker]})
    assert found["devices"] == {"cpu": None, "gpu": {"rows": 10, "updates": 10, "share": 0.5}}
    assert found["utilization"] == {"cpu": [], "gpu": [[4.0, 0.25]]}
    assert found["reached"] == {"early": None, "late": None}
