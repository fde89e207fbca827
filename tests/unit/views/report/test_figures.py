import math

import pytest
from hypothesis import given, strategies as st

from hogbatch.events.event import WorkerParked, WorkerUnparked
from hogbatch.views.report.comparison import (
    common_loss,
    comparison_figures,
    differing_table,
    results_table,
)
from hogbatch.views.report.figure import MAX_CURVES, Style, curve, thinned
from hogbatch.views.report.plots import COLOURS, DASHES, MARKERS
from hogbatch.views.report.run_figures import main_workers, run_figures, timeline
from tests.unit.views.report.conftest import TWO_WORKERS, reported
from tests.unit.views.status.conftest import evaluation, joined, lease, ready, started, state_after


def points(plot):
    return {each.name: each.points for each in plot.drawn}


@given(st.lists(st.floats(-1e9, 1e9), max_size=300), st.integers(4, 50))
def test_thinned_curves_keep_ends_and_extremes(values, most):
    whole = list(enumerate(values))
    kept = list(thinned(whole, most))
    assert len(kept) <= max(most, 0) and kept == sorted(kept)
    if whole:
        assert (kept[0], kept[-1]) == (whole[0], whole[-1])
        assert min(y for _, y in kept) == min(values)
        assert max(y for _, y in kept) == max(values)


def test_missing_values_are_gaps_and_many_parts_are_thinned():
    values = list(enumerate([1.0, None, 3.0, math.nan, math.inf]))
    assert curve("a", values, Style(0, 0, 0)).parts == (((0, 1.0),), ((2, 3.0),))
    values = [(n, None if n % 3 == 0 else 1.0 * n) for n in range(9000)]
    assert len(curve("a", values, Style(0, 0, 0), most=100).points) <= 200


def test_styles_differ_without_colours():
    styles = [Style.number(number) for number in range(MAX_CURVES)]
    assert len({(s.dash % len(DASHES), s.marker % len(MARKERS)) for s in styles}) == MAX_CURVES
    assert len({(s.colour % COLOURS, s.dash % len(DASHES)) for s in styles}) == MAX_CURVES


def test_the_figures_of_a_run(two_workers):
    by_time, by_epochs, used, shares, sizes, stale = run_figures(two_workers.run)
    losses = {"test": [(1.5, 0.4), (3.0, 0.3)], "training": [(1.5, 0.5), (3.0, 0.5)]}
    assert points(by_time) == losses and points(by_epochs)["test"] == [(1.0, 0.4), (2.0, 0.3)]
    utilization = {"cpu-0": [(1.5, 0.5), (3.0, 0.1)], "gpu-0": [(1.5, 0.25), (3.0, 0.5)]}
    assert points(used) == utilization
    assert [(bar.name, bar.text) for bar in shares.bars] == [
        ("cpu-0 (cpu:2)", "76% of 41 updates"),
        ("gpu-0 (gpu:0)", "24% of 41 updates"),
    ]
    assert points(sizes)["gpu-0"] == [(0.0, 128), (2.5, 256), (2.5, 128), (3.0, 128)]
    assert points(stale) == {"gpu-0": [(1.5, 5.0), (2.5, 1.0)]}, "the mean of each interval"


def test_staleness_of_many_leases_is_drawn_with_few_points_that_keep_its_mean():
    leases = [lease(n / 10, 0, 1, staleness=float(n % 5), updates=2) for n in range(5000)]
    state = state_after(started(), joined("cpu-0", "gpu:0"), ready(), *leases)
    ((found),) = points(run_figures(state)[-1]).values()
    assert 50 <= len(found) <= 70
    assert [round(y) for _, y in found[1:-1]] == [2] * (len(found) - 2)


def test_the_time_line_has_workers_and_incidents(two_workers):
    lanes = {lane.name: lane for lane in timeline(two_workers.run).lanes}
    assert list(lanes) == ["cpu-0 (cpu:2)", "gpu-0 (gpu:0)", "checkpoints", "out of memory"]
    cpu = lanes["cpu-0 (cpu:2)"]
    assert (cpu.present, cpu.parked, cpu.lost) == ((0.0, 3.0), ((1.5, 2.5),), 3.0)
    assert lanes["gpu-0 (gpu:0)"].present == (0.0, 3.0)
    assert lanes["checkpoints"].moments == (1.5,) and lanes["checkpoints"].count == 1


def test_a_worker_that_is_parked_often_has_few_intervals():
    changes = []
    for n in range(4000):
        change = WorkerParked("cpu-0", "") if n % 2 else WorkerUnparked("cpu-0")
        changes += [lease(n / 10, 0, 1), change]
    lanes = timeline(state_after(started(), joined(), ready(), *changes)).lanes
    assert 0 < len(lanes[0].parked) <= 300


def test_of_many_workers_those_with_most_rows_are_drawn():
    events = [started()]
    for n in range(20):
        events += [joined(f"cpu-{n}"), ready(f"cpu-{n}"), lease(1.0, 0, 10 + n, f"cpu-{n}")]
    shown, others = main_workers(state_after(*events))
    assert [worker.name for worker in shown] == [f"cpu-{n}" for n in range(8, 20)]
    assert "8 other workers are left out" in others


@pytest.fixture
def three_runs():
    """Runs that reach a loss of 0.4 after 1, 2 and 3 s."""
    runs = []
    for n in (1, 2, 3):
        losses = evaluation(n, 100, 0.4), evaluation(2 * n, 200, 0.1 + n / 100)
        settings = {"lr": n / 10, "seed": 1}
        runs.append(reported(started(), *losses, name=f"run {n}", settings=settings))
    return runs


def test_runs_are_compared_at_the_lowest_loss_of_all(three_runs):
    assert common_loss(three_runs) == pytest.approx(0.13)
    table = results_table(three_runs)
    assert table.header[-1] == "seconds to 0.1300"
    assert [row[-1] for row in table.rows] == ["2.00", "4.00", "6.00"]
    assert [row[5] for row in table.rows] == ["0.1100", "0.1200", "0.1300"]


def test_only_settings_that_differ_are_listed(three_runs):
    table = differing_table(three_runs)
    assert table.header == ("setting", "run 1", "run 2", "run 3")
    assert table.rows == (("lr", "0.1", "0.2", "0.3"),)
    assert differing_table(three_runs[:1]).note == "The runs have the same settings."


def test_runs_have_one_colour_each_and_of_many_runs_one_loss_is_drawn(three_runs):
    plot, *_ = comparison_figures(three_runs, 100)
    styles = {each.name: each.style for each in plot.curves}
    assert styles["run 1, test"].colour == styles["run 1, training"].colour == 0
    assert styles["run 3, test"].colour == 2
    assert styles["run 1, test"].dash != styles["run 1, training"].dash
    plot, *_ = comparison_figures(three_runs * 2, 100)
    assert [each.name.split(", ")[1] for each in plot.curves] == ["test"] * 6


def test_runs_without_a_test_set_are_compared_by_their_training_loss():
    runs = [
        reported(started(test_rows=0), evaluation(2.0, 1000, None, train_loss=loss), name=str(loss))
        for loss in (0.5, 0.25)
    ]
    assert common_loss(runs) == 0.5
    table = results_table(runs)
    assert "training rows" in table.note and [row[5] for row in table.rows] == ["0.5000", "0.2500"]


def test_a_run_without_evaluation_is_compared_without_its_loss(three_runs):
    runs = [*three_runs, reported(started(), name="new")]
    assert common_loss(runs) is None
    assert results_table(runs).rows[-1][2:] == ("0.00", "0.00", *["-"] * 6)


def test_different_data_are_mentioned():
    runs = [reported(*TWO_WORKERS), reported(started(data="w8a"), name="other")]
    assert "different data" in results_table(runs).note
