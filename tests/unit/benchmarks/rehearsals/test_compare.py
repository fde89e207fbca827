import json

from benchmarks.rehearsals.causes import cause, rate_factor
from benchmarks.rehearsals.compare import best_of, comparison, factor, failed_alone, timing
from benchmarks.rehearsals.outcome import outcome, utilization
from benchmarks.rehearsals.sets import SETS
from benchmarks.rehearsals.table import factor_cell, timing_cell
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


def test_the_factor_is_over_the_better_device_or_a_bound():
    def at(seconds, lasted=9.0):
        return timing([result("cpu", seconds, train_seconds=lasted)], "cpu", "late")

    assert factor(at(3.0), at(2.0)) == ("=", 1.5)
    assert factor(at(None, 10.0), at(2.0)) == (">", 5.0)
    assert factor(at(3.0), at(None, 6.0)) == ("<", 0.5)
    assert factor_cell(at(None), at(None)) == "-"


def test_a_bound_is_over_the_alone_run_that_ended_first():
    runs = [result("gpu-512", None, train_seconds=40.0), result("cpu", None, train_seconds=6.0)]
    found = comparison([*runs, result("adaptive", 3.0)], "late")
    assert found["factors"]["adaptive"] == {"bound": "<", "value": 0.5}


def test_without_any_whole_run_of_a_kind_there_is_no_factor():
    runs = [result("cpu", 2.0), result("gpu-512", error="killed"), result("adaptive", 1.0)]
    found = comparison(runs, "late")
    assert found["failed_alone"] == ["gpu"] == failed_alone(runs)
    assert found["factors"] == {} and found["better_alone"] is None
    whole = [*runs, result("gpu-256", 3.0)]
    assert comparison(whole, "late")["factors"]["adaptive"]["value"] == 0.5


def test_an_entry_of_the_json_has_no_infinities():
    runs = [result("cpu", None, 2.0), result("gpu-512", 2.0, 1.0), result("adaptive", None, 1.5)]
    found = comparison([*runs, result("hogbatch", error="boom")], "late")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["better_alone"] == "gpu-512" and found["best"] == {"gpu": "gpu-512"}
    assert found["factors"] == {"adaptive": {"bound": ">", "value": 4.5}}


def device(**changed):
    usual = {"threads": 16, "rows": 8000, "updates": 90, "share": 0.9, "busy": 0.9}
    return usual | {"staleness": None, "merging": 0.0, "batch": 64} | changed


def test_a_cause_names_staleness_updates_batches_and_rates():
    gpu = device(threads=1, rows=12_000, share=0.1, staleness=340.0, batch=256)
    ours = result("adaptive", 4.0, rows=20_000, devices={"cpu": device(), "gpu": gpu})
    alone = result("gpu-512", 2.0, devices={"cpu": None, "gpu": device(batch=512)})
    assert cause(ours, alone, "late") == (
        "2x the rows (staleness: 340 updates during a GPU's merge interval, 16 CPU threads, "
        "CPU: 90% of updates, 40% of rows, CPU batch 64 at rate x2, "
        "GPU batch 256 at rate x4 (alone 512 at x4))"
    )
    assert cause(alone, ours, "late") == ""


def test_a_cause_names_merges_and_idle_devices():
    gpu = device(merging=0.4, busy=0.5)
    ours = result("adaptive", 4.0, devices={"cpu": None, "gpu": gpu})
    found = cause(ours, result("gpu-512", 2.0, devices=ours["devices"]), "late")
    assert found == "0.5x the rows/s (merges take 40% of the GPU's time, GPU busy 50%)"


def test_a_method_that_did_not_reach_the_target_is_compared_at_its_end():
    ours = result("adaptive", None, rows=50_000, train_seconds=10.0)
    found = cause(ours, result("gpu-512", 2.0, rows=10_000), "late")
    assert found.startswith("> 5x the rows (")


def test_the_rate_of_a_batch_is_that_of_the_default_settings():
    assert [rate_factor(batch) for batch in (16, 64, 4096)] == [1.0, 2.0, 4.0]


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


def test_the_usual_batch_is_the_one_used_longest():
    worker = fake_rehearsal.worker("gpu", 8.0, 10, 10, 512)
    worker["batch_trace"] = [[0.0, 64], [1.0, 512], [7.0, 128]]
    point = {"seconds": 8.0, "epochs": 1.0, "rows": 9, "test_loss": 0.5, "test_values": {}}
    history = [point | {"utilization": {"gpu-0": 0.25}}]
    summary = {"status": "time", "train_seconds": 8.0, "rows": 9, "history": history}
    found = outcome(SETS["w8a"], summary | {"workers": [worker]})
    assert found["devices"]["gpu"]["batch"] == 512 and found["devices"]["cpu"] is None
    assert found["utilization"] == {"cpu": [], "gpu": [[4.0, 0.25]]}
    assert found["reached"] == {"early": None, "late": None}
