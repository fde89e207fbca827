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


def step_targets(*results, **settings):
    return target_results({"step": record(*results, **settings)})[:2]


@pytest.mark.parametrize(
    ("fields", "more", "states"),
    [
        ({}, (), (REACHED, REACHED)),
        ({"of_products": 0.69}, ((1, "float32", 1024, {"ours": 0.9}),), (MISSED, MISSED)),
        # small batches do not have to be fast; a later result has no graph
        ({}, ((0, "tf32", 64, {"ours": 0.1}),), (REACHED, REACHED)),
        ({}, ((0, "tf32", 256, {"graph": None}),), (REACHED, REACHED)),
        # times that cannot be compared
        ({"rows_per_second": {"hogbatch": 2.0}}, (), (UNKNOWN, REACHED)),
        ({"mismatched": ["graph"]}, (), (UNKNOWN, REACHED)),
        ({"mismatched": ["hogbatch"]}, (), (UNKNOWN, UNKNOWN)),
        ({"diverged": ["hogbatch"]}, (), (UNKNOWN, UNKNOWN)),
        ({"mismatched": ["not recorded", "eager"]}, (), (REACHED, REACHED)),
    ],
)
def test_the_worst_step_decides(fields, more, states):
    others = (result(NETWORKS[n], *place, **given) for n, *place, given in more)
    found = step_targets(*all_steps(**fields), *others)
    assert tuple(each.state for each in found) == states


def test_the_detail_names_the_worst():
    slow = result(NETWORKS[1], "float32", 1024, ours=0.9)
    one, other = step_targets(*all_steps(of_products=0.69), slow)
    assert "0.90, 54-512x3-7, float32, 1024 rows" in one.detail
    assert "0.69, 300-512x8-2, tf32" in other.detail


def test_what_is_missing_or_small_makes_targets_unknown():
    results = [each for each in all_steps() if each["batch"] == 256]
    quick = step_targets(*all_steps(), quick=True)
    for each in (*step_targets(*results), *quick, *target_results({})):
        assert each.state == UNKNOWN


@pytest.mark.parametrize(
    ("fractions", "state"),
    [
        ({"a9a": 0.05, "w8a": 0.1, "citeulike": 0.01}, REACHED),
        ({"a9a": 0.05, "w8a": 0.11, "citeulike": 0.1}, MISSED),
        ({"a9a": 0.05, "w8a": 0.1}, UNKNOWN),
    ],
)
def test_merging_counts_on_every_data_set(fractions, state):
    runs = ({"name": f"{which} cpu:15,gpu:0", "merging": at} for which, at in fractions.items())
    assert target_results({"cli": record(*runs)})[MERGING].state == state


def together(ratios, seeds=3, **fields):
    """Runs in which adaptive takes `ratios` of the time of the better device, by data set."""
    found = record(
        *(
            {"set": which, "name": name, "seconds": seconds} | fields
            for _ in range(seeds)
            for which, ratio in ratios.items()
            for name, seconds in (("cpu", 4.0), ("gpu", 2.0), ("adaptive", 2.0 * ratio))
        )
    )
    found["measurements"].append({"name": "hogbatch profile", "value": "some text"})
    return target_results({"together": found})[ADAPTIVE:]


@pytest.mark.parametrize(
    ("ratios", "fields", "states"),
    [
        (dict.fromkeys(SETS, 0.7), {}, (REACHED, REACHED)),
        (dict.fromkeys(SETS, 0.9), {}, (REACHED, MISSED)),
        (dict.fromkeys(SETS, 0.7) | {"imdb": 1.01}, {}, (MISSED, REACHED)),
        ({"w8a": 0.7, "imdb": 0.8}, {}, (UNKNOWN, REACHED)),  # two are enough
        ({"w8a": 0.7, "imdb": 0.9}, {}, (UNKNOWN, UNKNOWN)),
        # few seeds, close to a limit or not
        (dict.fromkeys(SETS, 0.95), {"seeds": 2}, (UNKNOWN, MISSED)),
        (dict.fromkeys(SETS, 1.15), {"seeds": 1}, (MISSED, MISSED)),
        (dict.fromkeys(SETS, 0.79), {"seeds": 2}, (REACHED, UNKNOWN)),
        (dict.fromkeys(SETS, 0.7), {"failed": "lost"}, (UNKNOWN, UNKNOWN)),
    ],
)
def test_adaptive_is_compared_with_the_better_device(ratios, fields, states):
    assert tuple(each.state for each in together(ratios, **fields)) == states


@pytest.mark.parametrize(("cpu", "adaptive", "state"), [(4.0, None, MISSED), (None, 1.0, UNKNOWN)])
def test_runs_that_do_not_reach_the_target(cpu, adaptive, state):
    seconds = {"cpu": cpu, "gpu": None, "adaptive": adaptive}
    values = [{"set": "w8a", "name": name, "seconds": each} for name, each in seconds.items()]
    assert target_results({"together": record(*values)})[ADAPTIVE].state == state
