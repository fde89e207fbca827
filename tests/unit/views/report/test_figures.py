import math

import pytest

from hogbatch.events.event import WorkerParked, WorkerUnparked
from hogbatch.views.report.figures import (
    comparison_figures,
    losses,
    most_rows,
    run_figures,
    timeline,
)
from hogbatch.views.report.tables import common_loss, differing_table, results_table
from tests.support.run_events import evaluation, joined, lease, ready, started, state_after
from tests.unit.views.report.conftest import reported


def points(chart):
    """The points of each curve by its name."""
    return {
        line.get_label().strip(): list(zip(*map(list, line.get_data()), strict=True))
        for line in chart.axes.lines
    }


def rows(chart):
    """The names of the rows of a chart, from the top."""
    return [text.get_text() for text in chart.axes.get_yticklabels()]


def test_the_figures_of_a_run(two_workers):
    by_time, by_epochs, used, shares, sizes, stale = run_figures(two_workers)
    values = {"validation": [(1.5, 0.4), (3.0, 0.3)], "training": [(1.5, 0.5), (3.0, 0.5)]}
    assert points(by_time) == values and points(by_epochs)["validation"] == [(1.0, 0.4), (2.0, 0.3)]
    utilization = {"cpu-0": [(1.5, 0.5), (3.0, 0.1)], "gpu-0": [(1.5, 0.25), (3.0, 0.5)]}
    assert points(used) == utilization
    assert rows(shares) == ["cpu-0 (cpu:2)", "gpu-0 (gpu:0)"]
    texts = [text.get_text() for text in shares.axes.texts]
    assert texts == ["76% of 41 updates", "24% of 41 updates"]
    assert points(sizes)["gpu-0"] == [(0.0, 128), (2.5, 256), (2.5, 128), (3.0, 128)]
    assert sizes.axes.get_yscale() == "log"
    assert points(stale) == {"gpu-0": [(1.5, 5.0), (2.5, 1.0)]}, "the mean of each interval"


def test_the_noise_scale_is_drawn_with_its_error_from_when_it_is_known():
    known = {"noise_scale": 900.0, "noise_error": 100.0}
    events = evaluation(1.0, 1000, 0.4), evaluation(2.0, 2000, 0.3, **known)
    *_, noise = run_figures(reported(started(), joined(), ready(), *events))
    assert noise.title == "Gradient noise scale"
    assert points(noise) == {
        "estimate": [(2.0, 900.0)],
        "- error": [(2.0, 800.0)],
        "+ error": [(2.0, 1000.0)],
    }


def test_staleness_of_many_leases_is_drawn_with_few_points_that_keep_its_mean():
    leases = [lease(n / 10, 0, 1, staleness=float(n % 5), updates=2) for n in range(5000)]
    run = reported(started(), joined("cpu-0", "gpu:0"), ready(), *leases)
    ((found),) = points(run_figures(run)[-1]).values()
    assert 50 <= len(found) <= 70
    assert [round(y) for _, y in found[1:-1]] == [2] * (len(found) - 2)


def test_the_time_line_has_workers_and_incidents(two_workers):
    chart = timeline(two_workers.run)
    names = ["cpu-0 (cpu:2)", "gpu-0 (gpu:0)", "checkpoints (1)", "out of memory (1)"]
    assert rows(chart) == names
    present, trained, lost, *others = (list(line.get_xdata()) for line in chart.axes.lines)
    assert present == [0.0, 3.0] and lost == [3.0]
    assert [x for x in trained if not math.isnan(x)] == [0.0, 1.5, 2.5, 3.0], "parked meanwhile"
    assert others[0] == [0.0, 3.0] and others[2:] == [[1.5], [2.5]]


def test_a_run_with_many_events_has_a_small_time_line():
    changes = []
    for n in range(4000):
        change = WorkerParked("cpu-0", "") if n % 2 else WorkerUnparked("cpu-0")
        changes += [lease(n / 10, 0, 1), change]
    assert len(timeline(state_after(started(), joined(), ready(), *changes)).svg()) < 100_000


def test_of_many_workers_those_with_most_rows_are_drawn():
    events = [started()]
    for n in range(20):
        events += [joined(f"cpu-{n}"), ready(f"cpu-{n}"), lease(1.0, 0, 10 + n, f"cpu-{n}")]
    shown, others = most_rows(state_after(*events))
    assert [worker.name for worker in shown] == [f"cpu-{n}" for n in range(8, 20)]
    assert "8 other workers are left out" in others
    runs = [reported(*events, name=f"run {n}") for n in range(4)]
    shares = comparison_figures(runs)[-1]
    assert len(rows(shares)) == 40 and "8 workers are left out" in shares.note


@pytest.fixture
def three_runs():
    """Runs that reach a loss of 0.4 after 1, 2 and 3 s."""
    runs = []
    for n in (1, 2, 3):
        values = evaluation(n, 100, 0.4), evaluation(2 * n, 200, 0.1 + n / 100)
        settings = {"lr": n / 10, "seed": 1}
        runs.append(reported(started(), *values, name=f"run {n}", settings=settings))
    return runs


def test_runs_are_compared_at_the_lowest_loss_of_all(three_runs):
    assert common_loss(three_runs) == pytest.approx(0.13)
    table = results_table(three_runs)
    assert table.header[-1] == "seconds to 0.1300"
    assert [row[-1] for row in table.rows] == ["2.00", "4.00", "6.00"]
    assert [row[6] for row in table.rows] == ["0.1100", "0.1200", "0.1300"]


def test_only_settings_that_differ_are_listed(three_runs):
    table = differing_table(three_runs)
    assert table.header == ("setting", "run 1", "run 2", "run 3")
    assert table.rows == (("lr", "0.1", "0.2", "0.3"),)
    assert differing_table(three_runs[:1]).note == "The runs have the same settings."


def test_runs_have_one_colour_each_and_of_many_runs_one_loss_is_drawn(three_runs):
    drawn = losses(three_runs, "epochs").axes.lines
    assert len(drawn) == 6 and len({line.get_color() for line in drawn}) == 3
    assert (
        drawn[0].get_label() == " run 1, validation" and drawn[1].get_label() == " run 1, training"
    )
    assert drawn[0].get_color() == drawn[1].get_color()
    assert drawn[0].get_linestyle() != drawn[1].get_linestyle()
    of_many = losses(three_runs * 2, "epochs").axes.lines
    assert len(of_many) == 6 and all(line.get_label().endswith(", validation") for line in of_many)


def test_runs_without_a_test_set_are_compared_by_their_training_loss():
    runs = [
        reported(
            started(validation_rows=0), evaluation(2.0, 1000, None, train_loss=loss), name=str(loss)
        )
        for loss in (0.5, 0.25)
    ]
    assert common_loss(runs) == 0.5
    table = results_table(runs)
    assert "training rows" in table.note and [row[6] for row in table.rows] == ["0.5000", "0.2500"]


def test_a_run_without_evaluation_is_compared_without_its_loss(three_runs):
    runs = [*three_runs, reported(started(data="w8a"), name="new")]
    assert common_loss(runs) is None and "different data" in results_table(runs).note
    assert results_table(runs).rows[-1][2:] == ("0.00", "0.00", *["-"] * 7)
