"""Snapshots, checkpoints, roll-backs, quarantined rows and interrupts."""

from dataclasses import asdict

import msgspec
import pytest

from hogbatch.coordinator.commands import (
    Finish,
    Kill,
    Quarantine,
    Report,
    Revoke,
    RollBack,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.ending import INTERRUPT_TIMEOUT_S
from hogbatch.coordinator.saved_state import PROGRESS, SavedState, save
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import (
    CheckpointBegins,
    CheckpointFailed,
    EvaluationBegins,
    LeaseDone,
    Poisoned,
    Recovered,
    RowsSkipped,
)
from tests.support.coordinator_stage import Stage, of_kind, records, works

WHERE = "layers.0.weight[2, 3]"


def checkpoints(commands):
    return [command.saved for command in of_kind(commands, Snapshot) if command.saved is not None]


class TestSnapshots:
    def test_the_initial_weights_are_copied_before_training(self):
        said = Stage().said
        assert said[:2] == [Shuffle(0), Snapshot(None)]
        assert records(said, CheckpointBegins) == []

    def test_the_model_is_checked_before_it_is_evaluated(self):
        play = Stage("a", validation_rows=10, train_rows=10)
        play.at_once = False
        play.done("a")
        assert play.state.phase == "inspect"
        assert not play.work["a"]
        commands = play.copy()
        assert works(commands)[0][1].task == "validation"
        assert records(commands, EvaluationBegins) == [EvaluationBegins(rows=10)]

    def test_an_evaluation_waits_for_a_copy_that_is_under_way(self):
        play = Stage("a", train_rows=30, validation_rows=10, checkpoint_seconds=1.0)
        play.done("a")
        play.at_once = False
        play.later(1.5)
        assert len(play.snapshots) == 1
        play.done("a")
        play.done("a")
        assert play.state.phase == "drain"
        play.at_once = True
        play.copy()
        assert play.state.phase == "evaluate"


class TestCheckpoints:
    def test_one_is_written_at_each_interval_during_training(self):
        play = Stage("a", train_rows=100_000, checkpoint_seconds=10.0)
        play.done("a")
        play.at_once = False
        commands = play.later(10.2)
        (saved,) = checkpoints(commands)
        assert saved.todo and saved.rows > 0
        reached = CheckpointBegins(saved.epoch, saved.rows, saved.seconds)
        assert records(commands, CheckpointBegins) == [reached]
        assert play.state.phase == "train"
        assert works(play.done("a"))  # while it is copied and written

    def test_rows_of_leases_in_flight_count_as_not_done(self):
        play = Stage("a", train_rows=1000, checkpoint_seconds=10.0)
        play.done("a")
        held = [(work.start, work.stop) for work in play.work["a"]]
        (saved,) = checkpoints(play.later(10.2))
        assert [span.rows for span in saved.todo][:2] == held
        assert sum(span.stop - span.start for span in saved.todo) == 1000 - saved.rows

    def test_there_is_none_before_a_row_was_trained_on(self):
        play = Stage("a", train_rows=100_000, checkpoint_seconds=1.0)
        assert not checkpoints(play.later(10.0))
        assert checkpoints(play.done("a"))

    def test_one_that_fails_is_told_of_and_tried_again_later(self):
        play = Stage("a", train_rows=100_000, checkpoint_seconds=10.0)
        play.done("a")
        play.unwritable = "No space left"
        commands = play.later(10.2)
        assert records(commands, CheckpointFailed) == [CheckpointFailed("No space left")]
        assert not checkpoints(play.later(19.0))
        play.unwritable = None
        assert checkpoints(play.later(1.5))
        assert play.state.totals(play.now).faults.checkpoints_failed == 1


def train_epochs(play, epochs):
    """Let worker a train for the given number of epochs, and start the next one."""
    until = play.state.epochs.number + epochs
    while play.finish is None and (play.state.epochs.number < until or not play.work["a"]):
        play.shuffle()
        if play.work["a"]:
            play.done("a")


class TestPoison:
    def test_a_model_that_is_not_finite_is_rolled_back_and_trained_more_carefully(self):
        play = Stage(train_rows=20, validation_rows=10, epochs=3, by_epoch=True)
        rate = works(play.attach("a"))[0][1].learning_rate
        play.bad = WHERE
        play.done("a")
        commands = play.done("a")
        (event,) = records(commands, Poisoned)
        assert (event.where, event.times) == (WHERE, 1)
        assert commands.index(RollBack()) < commands.index(next(c for c in commands if works([c])))
        assert not of_kind(play.said, Report)
        while (work := play.work["a"][0]).task != "train":
            play.done("a")
            play.shuffle()
        assert (work.learning_rate, work.rollbacks) == (rate / 2, 1)
        play.work_on()
        assert play.finish == Finish("finished")
        assert play.state.totals(play.now).faults.roll_backs == 1

    def test_leases_with_skipped_rows_since_the_last_good_snapshot_are_named(self):
        play = Stage("a", train_rows=10_000, checkpoint_seconds=10.0)
        play.done("a", skipped=9, skipped_row=3)
        play.later(10.2)  # all is well
        held = play.work["a"][0]
        play.done("a", skipped=3, skipped_row=8)
        play.bad = WHERE
        play.later(10.2)
        play.done("a")
        (event,) = records(play.done("a"), Poisoned)
        (suspect,) = event.suspects
        named = [suspect[key] for key in ("worker", "rows", "skipped", "row")]
        assert named == ["cpu-0", [held.start, held.stop], 3, 7]
        assert "busy_seconds" not in suspect

    def test_no_worker_writes_while_it_is_rolled_back(self):
        play = Stage("a", "b", train_rows=100_000, checkpoint_seconds=10.0)
        play.done("a")
        play.bad = WHERE
        play.later(10.2)
        for key in "aabb":
            assert not of_kind(play.said, RollBack)
            play.done(key)
        assert of_kind(play.said, RollBack)

    def test_three_times_without_progress_end_the_run(self):
        play = Stage("a", train_rows=20, validation_rows=10, epochs=None, by_epoch=True)
        for _ in range(3):
            play.bad = WHERE
            while play.bad:
                play.shuffle()
                play.done("a", skipped=0)
        assert play.finish.status == "failed" and play.finish.diverged
        assert "not finite 3 times with too little progress between them" in play.finish.reason
        assert f"the last time at {WHERE}; lower --lr" in play.finish.reason

    def test_a_long_run_survives_any_number_of_isolated_times(self):
        play = Stage(train_rows=20, epochs=100, by_epoch=True)
        rate = works(play.attach("a"))[0][1].learning_rate
        for _ in range(10):
            play.bad = WHERE
            train_epochs(play, 1)
            assert not play.bad and play.work["a"][0].learning_rate == rate / 2
            train_epochs(play, PROGRESS + 1)
            assert play.work["a"][0].learning_rate == rate
        play.work_on()
        assert play.finish == Finish("finished")
        times = [event.times for event in records(play.said, Poisoned)]
        assert times == [1] * 10
        assert records(play.said, Recovered) == [Recovered(0, 1.0)] * 10
        assert play.state.totals(play.now).faults.roll_backs == 10
        assert max(work.rollbacks for _, work in works(play.said)) == 10

    def test_a_resumed_run_goes_on_with_the_roll_backs_that_count(self):
        play = Stage("a", train_rows=20, epochs=100, by_epoch=True)
        for _ in range(2):
            play.bad = WHERE
            train_epochs(play, 1)
        saved = msgspec.convert(asdict(save(play.state, play.now)), SavedState)
        play.state = Coordinator.resumed(play.state.plan, play.state.policy, saved)
        play.work.clear()
        play._note(play.state.begin(play.now))
        (again, *_) = works(play.attach("a"))
        assert (again[1].learning_rate, again[1].rollbacks) == (0.1 / 4, 2)
        play.bad = WHERE
        train_epochs(play, 1)
        assert play.finish.diverged

    def test_skipped_rows_are_told_of_with_one_of_them(self):
        play = Stage("a", train_rows=40)
        work = play.work["a"][0]
        (event,) = records(play.done("a", skipped=2, skipped_row=18), RowsSkipped)
        assert (event.worker, event.skipped) == ("cpu-0", 2)
        assert event.rows == [work.start, work.stop]
        assert event.row == 17


class TestQuarantine:
    def test_rows_on_which_two_workers_died_are_handed_out_alone_and_by_batches(self):
        play = Stage("first", train_rows=1000)
        play.done("first")  # its leases are long by now
        held = play.work["first"][0]
        assert held.stop - held.start > 10
        play.lose("first")
        play.attach("second")
        play.lose("second")
        ((_, work),) = works(play.attach("third"))
        assert (work.start, work.stop) == (held.start, held.start + 10)
        assert works(play.done("third"))[0][1].start == work.stop

    def test_a_batch_that_kills_three_workers_is_left_out(self):
        play = Stage(train_rows=100, epochs=2)
        for key in "abcd":
            play.attach(key)
            if key != "d":
                commands = play.lose(key)
        assert of_kind(commands, Quarantine) == [Quarantine(0, 0, 10)]
        play.work_on()
        assert play.finish == Finish("finished")
        leases = [(r.epoch, *r.rows) for r in records(play.said, LeaseDone)]
        assert sorted(leases)[0] == (0, 10, 20)
        assert max(stop for epoch, _, stop in leases if epoch == 1) == 90
        assert play.state.totals(play.now).faults.rows_quarantined == 10

    def test_workers_that_leave_or_die_idle_count_no_death(self):
        play = Stage(train_rows=100)
        for key in "abcd":
            play.attach(key)
            play.goodbye(key)
        assert not of_kind(play.said, Quarantine)

    def test_a_run_ends_when_every_row_is_quarantined(self):
        play = Stage(train_rows=10, epochs=5)
        for key in "abc":
            play.attach(key)
            play.lose(key)
        play.attach("d")
        play.work_on()
        assert play.finish.status == "finished"


class TestInterrupt:
    def test_a_worker_that_does_not_finish_is_not_waited_for(self):
        play = Stage(train_rows=1000, checkpoint_seconds=1e9)
        play.attach("a", "b", pid=7)
        play.done("a")
        play.interrupt()
        while play.work["a"]:
            play.done("a")
        play.later(INTERRUPT_TIMEOUT_S / 2)
        play.interrupt()  # as the loop does again and again
        assert not play.finish
        commands = play.later(INTERRUPT_TIMEOUT_S / 2 + 0.2)
        kinds = [type(command) for command in commands]
        assert kinds.index(Revoke) < kinds.index(Kill) < kinds.index(Snapshot)
        assert play.finish == Finish("stopped", "interrupted")

    def test_an_evaluation_is_not_waited_for_either(self):
        play = Stage("a", train_rows=10, validation_rows=10, average=True)
        play.done("a")
        assert play.state.phase == "evaluate"
        play.interrupt()
        commands = play.later(INTERRUPT_TIMEOUT_S + 0.2)
        assert of_kind(commands, ShowMean) == [ShowMean(False)]
        assert play.finish.status == "stopped"

    @pytest.mark.parametrize("phase", ["evaluate", "train"])
    def test_the_model_is_restored_only_if_the_mean_is_shown(self, phase):
        play = Stage("a", train_rows=10, validation_rows=10, average=True)
        if phase == "evaluate":
            play.done("a")
        shown = of_kind(play.abandon("everybody is gone"), ShowMean)
        assert shown == [ShowMean(False)] * (phase == "evaluate")
