import pytest

from benchmarks.gpu_acceptance.step import PRECISIONS
from benchmarks.gpu_acceptance.targets import (
    MISSED,
    NETWORKS,
    REACHED,
    SETS,
    UNKNOWN,
    target_results,
)

ALONE, CEILING, MERGING, ADAPTIVE, TWO = range(5)


def record(*values, quick=False):
    """A record of measurements; a value with an "error" failed."""
    measurements = []
    for value in values:
        name = value.get("name", "measurement")
        error = {"error": value.pop("failed")} if "failed" in value else {}
        measurements.append({"name": name, "value": value} | error)
    return {"about": {"settings": {"quick": quick}}, "measurements": measurements}


def result(network, precision, batch, ours=2.0, graph=1.0, **fields):
    made = {"network": network, "precision": precision, "batch": batch, "of_products": 0.8}
    speeds = {"hogbatch": ours, "not recorded": 9.0} | ({"graph": graph} if graph else {})
    return made | {"rows_per_second": speeds, "mismatched": [], "diverged": []} | fields


def all_steps(**fields):
    """Results for every network, precision and size; `fields` are those of one of them."""
    results = {
        (n, p, b): result(n, p, b) for n in NETWORKS for p in PRECISIONS for b in (256, 8192)
    }
    results[NETWORKS[0], "tf32", 8192] |= fields
    return list(results.values())


def step_targets(*results):
    return target_results({"step": record(*results)})[:2]


def test_small_sizes_do_not_count():
    quick = target_results({"step": record(*all_steps(), quick=True)})
    assert {each.state for each in (*quick, *target_results({}))} == {UNKNOWN}


def test_everything_measured_and_good_is_reached():
    alone, ceiling = step_targets(*all_steps())
    assert (alone.state, ceiling.state) == (REACHED, REACHED)
    assert alone.detail.startswith("worst of 12: 2.00")


def test_one_slow_size_is_missed_and_named():
    slow = result(NETWORKS[1], "float32", 1024, ours=0.9)
    alone, ceiling = step_targets(*all_steps(of_products=0.69), slow)
    assert (alone.state, ceiling.state) == (MISSED, MISSED)
    assert "0.90, 54-512x3-7, float32, 1024 rows" in alone.detail
    assert "0.69, 300-512x8-2, tf32" in ceiling.detail


@pytest.mark.parametrize(
    ("fields", "states"),
    [
        ({"rows_per_second": {"hogbatch": 2.0}}, (UNKNOWN, REACHED)),
        ({"mismatched": ["graph"]}, (UNKNOWN, REACHED)),
        ({"mismatched": ["hogbatch"]}, (UNKNOWN, UNKNOWN)),
        ({"diverged": ["hogbatch"]}, (UNKNOWN, UNKNOWN)),
        ({"mismatched": ["not recorded", "eager"]}, (REACHED, REACHED)),
    ],
    ids=["no graph", "graph differs", "ours differs", "ours diverged", "others differ"],
)
def test_times_that_cannot_be_compared_make_the_target_unknown(fields, states):
    found = step_targets(*all_steps(**fields))
    assert tuple(each.state for each in found) == states


def test_a_size_that_is_missing_makes_the_target_unknown():
    results = [each for each in all_steps() if each["batch"] == 256]
    alone, ceiling = step_targets(*results)
    assert alone.state == ceiling.state == UNKNOWN
    assert "6 not measured" in alone.detail


@pytest.mark.parametrize(
    ("network", "batch", "fields"),
    [
        (0, 64, {"ours": 0.1}),  # small batches do not have to be fast
        (0, 256, {"graph": None}),  # does not replace an earlier measurement with a graph
    ],
)
def test_measurements_that_do_not_count(network, batch, fields):
    more = result(NETWORKS[network], "tf32", batch, **fields)
    assert step_targets(*all_steps(), more)[ALONE].state == REACHED


def runs(**fractions):
    return record(
        *({"name": f"{which} cpu:15,gpu:0", "merging": at} for which, at in fractions.items())
    )


def test_merging_counts_on_every_data_set():
    good = runs(a9a=0.05, w8a=0.1, citeulike=0.01)
    assert target_results({"cli": good})[MERGING].state == REACHED
    assert target_results({"cli": runs(a9a=0.05, w8a=0.11, citeulike=0.1)})[MERGING].state == MISSED
    assert target_results({"cli": runs(a9a=0.05, w8a=0.1)})[MERGING].state == UNKNOWN
    good["measurements"][1]["error"] = "exit code 12"
    assert target_results({"cli": good})[MERGING].state == UNKNOWN


def together(ratios, seeds=3, **fields):
    """Runs in which adaptive takes `ratios` of the time of the better device, by data set."""
    return record(
        *(
            {"set": which, "name": name, "seconds": seconds} | fields
            for _ in range(seeds)
            for which, ratio in ratios.items()
            for name, seconds in (("cpu", 4.0), ("gpu", 2.0), ("adaptive", 2.0 * ratio))
        )
    )


def adaptive_states(ratios, **fields):
    content = together(ratios, **fields)
    content["measurements"].append({"name": "hogbatch profile", "value": "some text"})
    found = target_results({"together": content})
    return found[ADAPTIVE].state, found[TWO].state


def test_adaptive_is_compared_with_the_better_device():
    assert adaptive_states(dict.fromkeys(SETS, 0.7)) == (REACHED, REACHED)
    assert adaptive_states(dict.fromkeys(SETS, 0.9)) == (REACHED, MISSED)
    assert adaptive_states(dict.fromkeys(SETS, 0.7) | {"imdb": 1.01}) == (MISSED, REACHED)


def test_a_ratio_of_few_seeds_that_is_close_to_its_limit_is_unknown():
    assert adaptive_states(dict.fromkeys(SETS, 0.95), seeds=2) == (UNKNOWN, MISSED)
    assert adaptive_states(dict.fromkeys(SETS, 1.05), seeds=2) == (UNKNOWN, MISSED)
    assert adaptive_states(dict.fromkeys(SETS, 1.15), seeds=1) == (MISSED, MISSED)
    assert adaptive_states(dict.fromkeys(SETS, 0.79), seeds=2) == (REACHED, UNKNOWN)
    assert adaptive_states(dict.fromkeys(SETS, 0.7), seeds=1) == (REACHED, REACHED)
    detail = target_results({"together": together({"w8a": 0.95}, seeds=1)})[ADAPTIVE].detail
    assert detail.startswith("worst of 1: 0.95, w8a (1 seed); 1 too close to the limit: w8a (1")


def test_two_good_data_sets_are_enough_for_the_second_target():
    assert adaptive_states({"w8a": 0.7, "imdb": 0.8}) == (UNKNOWN, REACHED)
    assert adaptive_states({"w8a": 0.7, "imdb": 0.9}) == (UNKNOWN, UNKNOWN)


def test_failed_runs_and_missing_kinds_make_a_data_set_unknown():
    assert adaptive_states(dict.fromkeys(SETS, 0.7), failed="lost") == (UNKNOWN, UNKNOWN)
    one = record({"set": "w8a", "name": "adaptive", "seconds": 1.0})
    assert target_results({"together": one})[ADAPTIVE].detail.startswith("5 not measured")


@pytest.mark.parametrize(("cpu", "adaptive", "state"), [(4.0, None, MISSED), (None, 1.0, UNKNOWN)])
def test_runs_that_do_not_reach_the_target(cpu, adaptive, state):
    seconds = {"cpu": cpu, "gpu": None, "adaptive": adaptive}
    values = [{"set": "w8a", "name": name, "seconds": each} for name, each in seconds.items()]
    assert target_results({"together": record(*values)})[ADAPTIVE].state == state
