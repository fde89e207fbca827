import json
import math
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks.rehearsals.__main__ as program
from benchmarks.common.result_store import ResultStore
from benchmarks.common.servers import Processors, all_servers, digest
from benchmarks.rehearsals import cell as cells
from benchmarks.rehearsals.causes import cause, rate_factor
from benchmarks.rehearsals.cell import Cell, InterruptedCell
from benchmarks.rehearsals.compare import best_of, comparison, factor, failed_alone, timing
from benchmarks.rehearsals.figures import curves, draw_all
from benchmarks.rehearsals.forecast import forecast
from benchmarks.rehearsals.matrix import Limits, Matrix
from benchmarks.rehearsals.methods import KINDS, Method, batch_of, neighbours
from benchmarks.rehearsals.outcome import outcome, utilisation
from benchmarks.rehearsals.schedule import expected_wall_s, limit, ordered
from benchmarks.rehearsals.search import Batches, Place, Search
from benchmarks.rehearsals.sets import PAPER_SERVERS, SETS
from benchmarks.rehearsals.table import factor_cell, table, timing_cell
from benchmarks.rehearsals.useful import Range, useful_range
from hogbatch.data import samples
from hogbatch.servers.description import read_server
from hogbatch.servers.toml_text import to_toml
from tests.unit.benchmarks import fake_rehearsal

SAMPLES = Path(samples.__file__).parent
FAKE = (sys.executable, fake_rehearsal.__file__, "rehearse")
BOTH = Processors(4, 4, ("0",))
SMT = Processors(56, 28, ("0", "1"))
BATCHES = {"cpu": Batches([64]), "gpu": Batches([512]), "gpus": Batches([512])}
SERVER = "fake"


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A function that returns the command lines of the fake command so far."""
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_LOG", str(log))
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture(autouse=True)
def fake_server(monkeypatch):
    """One server, with a digest that tests can change."""
    monkeypatch.setattr(cells, "digest", lambda server: "1")


def wanted(seeds=(0,), set_name="a9a"):
    place = Place(set_name, SERVER, BOTH, KINDS, BATCHES)
    chosen = [*place.first(), *place.together()]
    return [Cell(set_name, SERVER, method, seed) for seed in seeds for method in chosen]


def matrix(tmp_path, **changed):
    limits = replace(Limits(within=5.0, jobs=2, budget_s=math.inf, cell_s=60.0), **changed)
    return Matrix(SAMPLES, ResultStore(tmp_path / "cells"), limits, FAKE)


def run(made, chosen):
    """Run the missing cells; return (cells left, results in the order in which they ended)."""
    shown = []
    left = made.run(made.load(chosen), lambda result, rest: shown.append(result))
    return left, shown


def result(method, late=None, early=None, kind=None, seed=0, error=None, **other):
    """The result of a cell."""
    rows = other.pop("rows", 10_000)
    reached = {
        name: None if at is None else {"seconds": at, "rows": rows}
        for name, at in (("early", early), ("late", late))
    }
    made = {"set": "w8a", "server": SERVER, "method": method, "seed": seed, "error": error}
    made |= {"kind": kind or method.partition("-")[0], "reached": reached, "rows": rows}
    made |= {"wall_s": 4.0, "rough_wall_s": 16.0, "train_seconds": late or 9.0}
    return made | {"devices": {"cpu": None, "gpu": None}} | other


# Methods ------------------------------------------------------------------------------------------


def names(methods):
    return [method.name for method in methods]


def test_the_methods_of_a_server_are_both_devices_alone_and_both_policies():
    place = Place("w8a", SERVER, BOTH, KINDS, BATCHES)
    found = {method.name: method for method in [*place.first(), *place.together()]}
    assert list(found) == ["gpu-512", "cpu-64", "cpu", "hogbatch", "adaptive"]
    fixed = ("--workers", "gpu:0", "--policy", "fixed", "--gpu-batch", "512:512")
    assert found["gpu-512"].flags == fixed
    assert found["cpu"].flags == ("--workers", "cpu:4")
    assert found["adaptive"].flags == ("--policy", "adaptive")
    assert [name for name, method in found.items() if not method.alone] == ["hogbatch", "adaptive"]


def test_without_a_gpu_the_default_of_the_cpu_is_adaptive():
    place = Place("w8a", SERVER, Processors(64, 64), KINDS, BATCHES)
    assert names([*place.first(), *place.together()]) == ["cpu-64", "hogbatch", "adaptive"]


def test_several_gpus_are_alone_without_the_cpu_too_and_the_cpu_with_a_thread_on_each_core():
    found = {m.name: m for m in Place("w8a", SERVER, SMT, KINDS, BATCHES).first()}
    assert list(found) == ["gpu-512", "gpus-512", "cpu-64", "cpu", "cpu-28threads"]
    assert found["gpu-512"].flags[1] == "gpu:0"
    assert found["gpus-512"].flags[1] == "gpu:0,gpu:1" and found["gpus-512"].alone
    assert found["cpu"].flags == ("--workers", "cpu:56")
    assert found["cpu-28threads"].flags == ("--workers", "cpu:28")
    assert [batch_of(name) for name in found] == [512, 512, 64, None, None]


def test_neighbours_are_half_and_twice_the_batch_and_the_other_number_of_threads():
    assert names(neighbours(BOTH, "gpu-512", 16, 4096)) == ["gpu-256", "gpu-1024"]
    assert names(neighbours(BOTH, "gpu-16", 16, 16)) == []
    found = list(neighbours(SMT, "cpu-64", 1, 64))
    assert names(found) == ["cpu-32", "cpu-64-28threads"]
    assert found[1].flags[:2] == ("--workers", "cpu:28")
    assert names(neighbours(SMT, "cpu-64-28threads", 64, 128)) == ["cpu-128-28threads", "cpu-64"]


def searched(seeds=1, **seconds):
    """The names of the cells of each round, if the methods take these seconds (default: 9)."""
    batches = {"cpu": Batches([64]), "gpu": Batches([512, 128, 2048], 16, 2048)}
    results, rounds = [], []
    search = Search([Place("w8a", SERVER, BOTH, KINDS, batches)], seeds)
    for group in search.rounds(results):
        rounds.append([f"{cell.method.name}--{cell.seed}" for cell in group])
        for cell in group:
            late = seconds.get(cell.method.name.replace("-", "_"), 9.0)
            results.append(result(cell.method.name, late, kind=cell.method.kind, seed=cell.seed))
    return rounds


def test_neighbours_of_the_best_batch_run_until_it_is_not_at_an_edge():
    assert searched(gpu_512=1.0) == [
        ["gpu-512--0", "gpu-128--0", "gpu-2048--0", "cpu-64--0", "cpu--0"],
        ["gpu-256--0", "gpu-1024--0"],
        ["hogbatch--0", "adaptive--0"],
    ]
    downward = searched(gpu_128=2.0, gpu_64=1.0)
    assert downward[1:-1] == [["gpu-64--0", "gpu-256--0"], ["gpu-32--0"]]
    assert searched(gpu_2048=1.0)[1] == ["gpu-1024--0"]  # a larger batch is not useful


def test_other_seeds_repeat_the_methods_of_the_first():
    first, second, both, repeated, last = searched(seeds=2, gpu_512=1.0)
    assert repeated == [name.replace("--0", "--1") for name in [*first, *second]]
    assert last == [name.replace("--0", "--1") for name in both]


def test_without_a_batch_that_arrives_none_is_added():
    assert len(searched(gpu_512=None, gpu_128=None, gpu_2048=None)) == 2


@pytest.mark.parametrize(
    ("limits", "found"),
    [((512, 8192), [2048, 512, 8192]), ((512, 512), [256, 128, 512]), ((16, 16), [16])],
)
def test_the_first_batches_are_spread_over_the_useful_range(limits, found):
    assert Range(*limits).spread() == found


def test_the_useful_range_is_that_of_the_predicted_speeds_of_the_gpu():
    small, large = (useful_range("a9a", name, SAMPLES) for name in ("k80-28cores", "h100-16cores"))
    assert 16 <= small.low < small.high and small.low < large.low <= large.high


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


@pytest.mark.parametrize(
    ("server", "found"),
    [
        ("epyc-64cores", (64, 64)),
        ("h100-16cores", (16, 16, ("0",))),
        ("epyc-2cores", (2, 2)),  # it describes gpu:host, which `workers auto` does not use
        ("k80-28cores", (56, 28, ("0", "1"))),
    ],
)
def test_processors_are_those_of_the_description(server, found):
    assert Processors.of(server) == Processors(*found)


def test_the_digest_of_a_description_covers_the_one_it_is_based_on(tmp_path):
    base = to_toml(read_server("epyc-2cores"))
    (tmp_path / "base.toml").write_text(base)
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nabout = "A test"\nbased_on = "base.toml"\n')
    before = digest(str(file))
    assert digest(str(file)) == before
    (tmp_path / "base.toml").write_text(base.replace("smt_gain = 1.0", "smt_gain = 1.1"))
    assert digest(str(file)) != before


def test_the_servers_of_the_paper_are_bundled():
    assert set(PAPER_SERVERS) < set(all_servers())


def test_a_run_with_a_metric_is_not_stopped_by_a_loss():
    flags = SETS["citeulike"].flags(SAMPLES)
    assert float(flags[flags.index("--target-loss") + 1]) < 1e-6
    assert SETS["citeulike"].shown("early") == "P@1 0.45"
    assert SETS["w8a"].flags(SAMPLES)[-1] == "0.042"


def test_networks_of_the_paper_are_trained_on_its_servers_only():
    assert SETS["w8a-paper"].allows("v100-32cores") and SETS["w8a"].allows("laptop-8cores")
    assert not SETS["w8a-paper"].allows("laptop-8cores")


# Running ------------------------------------------------------------------------------------------


def test_every_cell_has_a_file_with_its_targets_series_and_devices(tmp_path):
    left, shown = run(matrix(tmp_path), wanted())
    assert left == [] and len(shown) == 5
    found = json.loads((tmp_path / "cells" / "a9a--fake--adaptive--0.json").read_text())
    assert found["error"] is None and found["rehearsed"]["server"] == "fake"
    # 5,000 rows/s and a loss of 0.8 / (1 + rows / 10,000), interpolated within half seconds
    assert found["reached"]["early"]["seconds"] == pytest.approx(2.444, abs=0.03)
    assert found["reached"]["late"]["rows"] == pytest.approx(14_242, rel=0.01)
    assert found["devices"]["gpu"]["merging"] == pytest.approx(0.2)
    assert found["devices"]["cpu"]["batch"] == 64
    heights = [height for _, height in found["utilisation"]["gpu"]]
    assert sum(heights) / len(heights) == pytest.approx(0.5, abs=0.01)


def test_cells_that_are_done_do_not_run_again(tmp_path, calls):
    run(matrix(tmp_path), wanted())
    again = matrix(tmp_path)
    assert again.load(wanted()) == [] and len(again.results) == 5
    assert len(calls()) == 5
    left, _ = run(matrix(tmp_path), wanted(seeds=(0, 1)))
    assert left == [] and len(calls()) == 10


@pytest.mark.parametrize("changed", ["digest", "source_key"])
def test_cells_of_other_sources_or_another_server_run_again(changed, tmp_path, calls, monkeypatch):
    run(matrix(tmp_path), wanted())
    monkeypatch.setattr(cells, changed, lambda *given: "2")
    run(matrix(tmp_path), wanted())
    assert len(calls()) == 10


def test_the_moments_of_targets_are_computed_from_the_stored_history(tmp_path):
    _, [first, *_] = run(matrix(tmp_path), wanted())
    path = tmp_path / "cells" / f"a9a--fake--{first['method']}--0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"reached": {"late": None}}))
    again = matrix(tmp_path)
    assert again.load(wanted()) == []
    assert [r["reached"] for r in again.results if r["method"] == first["method"]] == [
        first["reached"]
    ]


def test_a_truncated_file_counts_as_missing(tmp_path):
    run(matrix(tmp_path), wanted())
    path = tmp_path / "cells" / "a9a--fake--cpu--0.json"
    path.write_text(path.read_text()[:40])
    assert [cell.name for cell in matrix(tmp_path).load(wanted())] == ["a9a--fake--cpu--0"]


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


def test_after_the_budget_no_cell_starts(tmp_path, calls):
    left, shown = run(matrix(tmp_path, budget_s=0.0), wanted())
    assert len(left) == 5 and not shown and calls() == []


def test_cells_run_at_the_same_time_but_not_more_than_jobs(tmp_path, monkeypatch):
    barrier, peak, now, lock = threading.Barrier(2, timeout=60), [], [], threading.Lock()

    def slow(cell, *given):
        with lock:
            now.append(cell)
            peak.append(len(now))
        if cell.method.alone:  # the first two of them meet here, or the barrier breaks
            barrier.wait()
        with lock:
            now.remove(cell)
        return result(cell.method.name, 1.0, 1.0, cell.method.kind)

    monkeypatch.setattr(Cell, "run", slow)
    chosen = [each for each in wanted() if each.method.name != "cpu"]  # an even number alone
    _, shown = run(matrix(tmp_path), chosen)
    assert len(shown) == 4 and max(peak) == 2


# Order, limits and estimates ----------------------------------------------------------------------


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


# Comparison ---------------------------------------------------------------------------------------


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
        "2x the rows (staleness: 340 updates during a GPU's merge interval, 16 Hogwild threads, "
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


# Utilisation --------------------------------------------------------------------------------------


def test_utilisation_is_the_time_that_leases_computed_in_each_interval():
    workers = [{"name": f"gpu-{n}", "device": "gpu"} for n in range(2)]
    lease = {"event": "lease", "worker": "gpu-0", "seconds": 2.0, "busy_seconds": 1.0}
    series = utilisation(workers, [lease, {"event": "epoch"}], "gpu", 4.0)
    assert [height for _, height in series[:10]] == [0.0] * 10
    assert [height for _, height in series[10:20]] == [0.5] * 10
    assert [height for _, height in series[20:]] == [0.0] * 20
    assert series[0][0] == pytest.approx(0.05) and len(series) == 40
    assert utilisation(workers, [], "gpu", 4.0) == []


def test_the_usual_batch_is_the_one_used_longest():
    worker = fake_rehearsal.worker("gpu", 8.0, 10, 10, 512)
    worker["batch_trace"] = [[0.0, 64], [1.0, 512], [7.0, 128]]
    history = [{"seconds": 8.0, "epochs": 1.0, "rows": 9, "test_loss": 0.5, "test_values": {}}]
    summary = {"status": "time", "train_seconds": 8.0, "rows": 9, "history": history}
    found = outcome(SETS["w8a"], summary | {"workers": [worker]}, [])
    assert found["devices"]["gpu"]["batch"] == 512 and found["devices"]["cpu"] is None
    assert found["reached"] == {"early": None, "late": None}


# Reports ------------------------------------------------------------------------------------------


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
        "| w8a, 0.05 | fake | 2 s, 10k rows | 1.5 s, 10k rows (64) | 0.5 s, 10k rows (512) | - | "
        "not in 9 s | 0.5 s, 2.5M rows | > 18.00 | 1.00 |  |",
        "| w8a, 0.042 | fake | 4 s, 10k rows | 3 s, 10k rows (64) | 2 s, 10k rows (256) | - | "
        "not in 9 s | 1 s, 2.5M rows | > 4.50 | 0.50 |  |",
    ]


def test_failed_and_missing_methods_are_shown_as_such():
    runs = [result("cpu", 4.0, 2.0), result("gpu-512", error="boom")]
    row = table(runs).splitlines()[-1].split(" | ")
    mark = "- (gpu failed)"
    assert row[3:10] == ["-", "failed", "-", "-", "-", mark, mark]


def test_figures_are_drawn_for_each_place(tmp_path):
    pytest.importorskip("matplotlib")
    made = matrix(tmp_path)
    run(made, wanted())
    chosen = curves(made.results)
    assert list(chosen) == ["cpu", "cpu fixed", "gpu fixed", "hogbatch", "adaptive"]
    [path] = draw_all(made.results, tmp_path)
    text = path.read_text()
    assert path.name == "a9a--fake.svg"
    for words in ("utilisation", "share of the updates", "epochs", "a9a on fake, rehearsed"):
        assert words in text


# The program --------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The program with the fake command and one server; a function of more flags."""
    monkeypatch.setattr(program, "all_servers", lambda: [SERVER])
    monkeypatch.setattr(Processors, "of", lambda server: BOTH)
    return lambda *more: program.main(["--quick", "--out", str(tmp_path / "out"), *more], FAKE)


def test_the_program_writes_cells_json_table_and_figures(tmp_path, capsys, quick):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- matrix -->\nold\n<!-- /matrix -->\nafter\n")
    assert quick("--page", str(page)) == 0
    out = tmp_path / "out"
    assert len(list((out / "cells").iterdir())) == 5
    found = json.loads((out / "matrix.json").read_text())
    assert [entry["target"] for entry in found["results"]] == ["early", "late"]
    assert (out / "matrix.md").read_text().count("| a9a, ") == 2
    assert page.read_text().startswith("before\n<!-- matrix -->\n| set, target |")
    assert page.read_text().endswith("|\n<!-- /matrix -->\nafter\n")
    printed = capsys.readouterr().out
    assert "3 cells, 3 to run" in printed and "cells of this round left, about" in printed


def test_a_report_runs_nothing(quick, calls, monkeypatch):
    assert quick("--report") == 1  # nothing has run, so that all cells are missing
    assert quick() == 0
    monkeypatch.setattr(cells, "source_key", lambda: "newer")
    assert quick("--report") == 0  # also of cells that would run again
    assert len(calls()) == 5


def test_a_report_names_the_sources_of_its_cells(tmp_path, quick, monkeypatch):
    out = tmp_path / "out"

    def sources():
        return json.loads((out / "matrix.json").read_text())["about"]["sources"]

    monkeypatch.setattr(cells, "source_key", lambda: "old")
    quick("--methods", "cpu,gpu")
    assert sources() == ["old"] and "versions" not in (out / "matrix.md").read_text()
    monkeypatch.setattr(cells, "source_key", lambda: "new")
    quick("--methods", "adaptive")
    assert quick("--methods", "cpu,gpu,adaptive", "--report") == 0
    assert sources() == ["new", "old"]
    assert "several versions of the sources: new, old." in (out / "matrix.md").read_text()


def test_a_dry_run_starts_and_writes_nothing(tmp_path, quick, calls, capsys):
    assert quick("--dry-run") == 0
    assert calls() == [] and not (tmp_path / "out").exists()
    printed = capsys.readouterr().out
    assert "| gpu-256 cpu-256 cpu hogbatch adaptive |" in printed and "5 cells, about" in printed


def test_a_failed_cell_is_in_the_report_and_in_the_exit_code(tmp_path, quick, capsys):
    assert quick("--seeds", f"{fake_rehearsal.FAILING_SEED + 1}", "--methods", "adaptive") == 1
    last = "adaptive, seed 13: ValueError: no rows"
    assert last in (tmp_path / "out" / "matrix.md").read_text()
    assert "1 cells failed, 0 have not run" in capsys.readouterr().out


def test_missing_data_and_unknown_servers_are_one_sentence(tmp_path, capsys):
    assert program.main(["--data", str(tmp_path), "--out", str(tmp_path), "--servers", "x"]) == 2
    assert "imdb-train.svm.gz does not exist" in capsys.readouterr().err
    assert program.main(["--quick", "--out", str(tmp_path), "--servers", "x"]) == 2
    assert "server 'x': expected one of" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
