"""Reports of GPU workers: batches beyond their memory, staleness, refused merges."""

import pytest

from hogbatch.coordinator.commands import Report
from hogbatch.coordinator.recovery import MAX_NAMED
from hogbatch.events.event import LeaseDone, MergeRefused, OutOfMemory
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Hogbatch
from tests.support.coordinator_stage import of_kind, records, works

SIZE = 100  # rows of the first batches


@pytest.fixture
def play(stage):
    """A GPU worker "g" with two leases of batches of SIZE rows in flight."""
    made = stage(
        train_rows=10_000, gpu=(10, SIZE), lease_seconds=0.3, policy=Hogbatch(PolicySettings())
    )
    made.attach("g", device="gpu")
    assert [work.batch_size for work in made.work["g"]] == [SIZE, SIZE]
    return made


def test_rows_done_are_acknowledged_and_the_rest_is_handed_out_next(play):
    first = play.work["g"][0]
    commands = play.done("g", rows=200, updates=2, loss=90.0, too_large=SIZE)
    (event,) = records(commands, LeaseDone)
    assert event.rows == [first.start, first.start + 200]
    (worker,) = play.state.totals(play.now).workers
    assert (play.state.progress.rows, worker.rows, worker.updates) == (200, 200, 2)
    assert play.state.progress.trained.loss == 90.0
    ((key, work),) = works(commands)
    assert (key, work.start) == ("g", first.start + 200)
    assert work.stop <= first.stop


def test_a_lease_without_any_row_done_is_not_logged(play):
    first = play.work["g"][0]
    commands = play.done("g", rows=0, updates=0, seconds=0.0, loss=0.0, too_large=SIZE)
    assert records(commands, LeaseDone) == []
    assert play.state.progress.rows == 0
    assert works(commands)[0][1].start == first.start
    play.work_on()
    assert play.finish.status == "finished"
    assert play.state.progress.rows == 10_000


def test_batches_become_half_of_what_was_too_large_and_stay_below_it(play):
    commands = play.done("g", rows=0, updates=0, too_large=SIZE)
    assert records(commands, OutOfMemory) == [OutOfMemory("gpu-0", SIZE, 50)]
    assert [work.batch_size for _, work in works(commands)] == [50]
    worker = play.state.workers["g"]
    assert worker.limits == (10, 90)
    assert worker.batch_trace.points == [(0.0, 100), (0.0, 50)]
    commands = play.done("g", rows=100, updates=1, too_large=SIZE)  # of the same size
    assert records(commands, OutOfMemory) == []
    assert (worker.limits, worker.batch_size) == ((10, 90), 50)


def test_an_evaluation_that_does_not_fit_continues_with_smaller_batches(stage):
    play = stage(
        policy=Hogbatch(PolicySettings()), train_rows=100, validation_rows=1000, gpu=(10, SIZE)
    )
    play.attach("g", device="gpu")
    while play.work["g"][0].task == "train":
        play.done("g")
    first = play.work["g"][0]
    assert first.batch_size == SIZE
    commands = play.done("g", rows=0, updates=0, loss=0.0, too_large=SIZE)
    assert records(commands, OutOfMemory) == [OutOfMemory("gpu-0", SIZE, 45)]
    ((_, again),) = works(commands)
    assert (again.task, again.start, again.batch_size) == ("validation", first.start, 45)
    play.done("g", rows=0, updates=0, loss=0.0, too_large=SIZE)
    play.work_on(metric_sums=(1.0,))
    (report,) = of_kind(play.said, Report)
    assert report.evaluation.validation_loss == 0.5  # per row, and every row once


def test_a_lease_of_a_gpu_reports_staleness_and_costs_of_merges(play):
    costs = {"merge_seconds": 0.0123456789, "transferred": 4000, "transfer_seconds": 0.25}
    (event,) = records(play.done("g", staleness=2.34567, **costs), LeaseDone)
    assert (event.merge_seconds, event.transfer_seconds) == (0.012346, 0.25)
    assert (event.transferred, event.staleness) == (4000, 2.3457)
    (worker,) = play.state.totals(play.now).workers
    assert {name: getattr(worker, name) for name in costs} == costs
    assert worker.staleness == 2.34567


def test_refused_merges_are_counted_and_reported_with_their_lease(play):
    lease = play.work["g"][0]
    commands = play.done("g", refused=2, skipped=200)
    (event,) = records(commands, MergeRefused)
    assert (event.worker, event.refused) == ("gpu-0", 2)
    assert event.rows == [lease.start, lease.stop]
    (event,) = records(play.done("g", refused=1, skipped=100), MergeRefused)
    assert event.refused == 1
    faults = play.state.totals(play.now).faults
    assert (faults.merges_refused, faults.rows_skipped) == (3, 300)


def test_only_the_first_refused_merges_have_events(play):
    play.state.recovery._named = MAX_NAMED - 1
    assert len(records(play.done("g", refused=1), MergeRefused)) == 1
    assert records(play.done("g", refused=1), MergeRefused) == []
    assert play.state.totals(play.now).faults.merges_refused == 2
