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
from tests.unit.views.status.conftest import (
    evaluation,
    joined,
    lease,
    ready,
    started,
    state_after,
)


def figure(figures, title):
    (found,) = [each for each in figures if each.title == title]
    return found


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


def test_missing_values_are_gaps():
    found = curve(
        "a", [(0, 1.0), (1, None), (2, 3.0), (3, math.nan), (4, math.inf)], Style(0, 0, 0)
    )
    assert found.parts == (((0, 1.0),), ((2, 3.0),))
    assert found.points == [(0, 1.0), (2, 3.0)]


def test_a_curve_of_many_parts_is_thinned():
    values = [(n, None if n % 3 == 0 else 1.0 * n) for n in range(9000)]
    assert len(curve("a", values, Style(0, 0, 0), most=100).points) <= 200


def test_styles_differ_without_colours():
    styles = [Style.number(number) for number in range(MAX_CURVES)]
    assert len({(s.dash % len(DASHES), s.marker % len(MARKERS)) for s in styles}) == MAX_CURVES
    assert len({(s.colour % COLOURS, s.dash % len(DASHES)) for s in styles}) == MAX_CURVES


def test_the_losses_are_drawn_by_seconds_and_by_epochs(two_workers):
    figures = run_figures(two_workers.run)
    by_time = points(figure(figures, "Loss against training time"))
    assert by_time == {"test": [(1.5, 0.4), (3.0, 0.3)], "training": [(1.5, 0.5), (3.0, 0.5)]}
    by_epochs = points(figure(figures, "Loss against epochs"))
    assert by_epochs["test"] == [(1.0, 0.4), (2.0, 0.3)]


def test_each_worker_has_a_utilization_a_share_and_batch_sizes(two_workers):
    figures = run_figures(two_workers.run)
    used = points(figure(figures, "Utilization of each worker"))
    assert used == {"cpu-0": [(1.5, 0.5), (3.0, 0.1)], "gpu-0": [(1.5, 0.25), (3.0, 0.5)]}
    bars = figure(figures, "Share of updates by worker").bars
    assert [(bar.name, bar.text) for bar in bars] == [
        ("cpu-0 (cpu:2)", "76% of 41 updates"),
        ("gpu-0 (gpu:0)", "24% of 41 updates"),
    ]
    sizes = points(figure(figures, "Batch sizes"))
    assert sizes["gpu-0"] == [(0.0, 128), (2.5, 256), (2.5, 128), (3.0, 128)]


def test_staleness_is_the_mean_of_each_interval(two_workers):
    stale = points(figure(run_figures(two_workers.run), "Staleness of GPUs"))
    assert stale == {"gpu-0": [(1.5, 5.0), (2.5, 1.0)]}


def test_staleness_of_many_leases_is_drawn_with_few_points_that_keep_its_mean():
    leases = [lease(n / 10, 0, 1, staleness=float(n % 5), updates=2) for n in range(5000)]
    state = state_after(started(), joined("cpu-0", "gpu:0"), ready(), *leases)
    ((found),) = points(figure(run_figures(state), "Staleness of GPUs")).values()
    assert 50 <= len(found) <= 70
    assert [round(y) for _, y in found[1:-1]] == [2] * (len(found) - 2)


def test_a_run_without_gpu_has_no_staleness():
    titles = [each.title for each in run_figures(state_after(started(), joined(), ready()))]
    assert "Staleness of GPUs" not in titles and "Batch sizes" in titles


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
    return [
        reported(
            started(),
            joined(),
            ready(),
            lease(1.0, 0, 100),
            *(evaluation(n * s, 100 * s, 0.7 - 0.3 * s + d) for s, d in ((1, 0), (2, n / 100))),
            name=f"run {n}",
            settings={"lr": n / 10, "seed": 1},
        )
        for n in (1, 2, 3)
    ]


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


def test_runs_have_one_colour_each(three_runs):
    plot = figure(comparison_figures(three_runs, 100), "Loss against training time")
    colours = {each.name: each.style.colour for each in plot.curves}
    assert colours["run 1, test"] == colours["run 1, training"] == 0
    assert colours["run 3, test"] == 2
    assert plot.curves[0].style.dash != plot.curves[1].style.dash


def test_of_many_runs_one_loss_is_drawn(three_runs):
    plot = figure(comparison_figures(three_runs * 2, 100), "Loss against epochs")
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


def test_the_exact_training_loss_is_connected_over_evaluations_without_it():
    run = reported(
        started(),
        evaluation(1.0, 500, 0.5, exact_train_loss=0.45),
        evaluation(2.0, 1000, 0.45),
        evaluation(3.0, 1500, 0.4, exact_train_loss=0.35),
    ).run
    plot = run_figures(run)[0]
    (exact,) = [each for each in plot.curves if each.name == "exact training"]
    assert exact.parts == (((1.0, 0.45), (3.0, 0.35)),)


def test_runs_without_an_exact_training_loss_have_no_curve_of_it(two_workers):
    assert {each.name for each in run_figures(two_workers.run)[0].drawn} == {"test", "training"}
