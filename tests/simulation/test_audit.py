"""The auditor of "every row exactly once" finds what a faulty coordinator could do."""

import pytest

from hogbatch.coordinator.commands import Finish, Kill, Quarantine, Record, Revoke, Send
from hogbatch.events.event import EpochEnded, LeaseDone
from hogbatch.wire.messages import Done, Lease, Stop
from tests.simulation.audit import Audit, InvariantViolation
from tests.support.coordinator_stage import Stage, make_plan


class AuditedStage(Stage):
    """Two workers, each with leases; a revoked worker stays alive until it is killed."""

    def __init__(self):
        plan = {"train_rows": 100, "validation_rows": 20}
        self.audit = Audit(make_plan(**plan))
        self.fences = [0, 0]
        self.alive = {"a", "b"}
        super().__init__(**plan)
        self.attach("a", pid=1)
        self.attach("b", pid=2)

    def fence(self, number):
        return self.fences[number]

    def reachable(self, key):
        return key in self.alive

    def receive(self, key, message):
        self.audit.received(key, message)
        return super().receive(key, message)

    def command(self, *commands):
        for command in commands:
            self.audit.commanded(command, self)
            if isinstance(command, Revoke):
                self.fences[command.number] += 1

    def _note(self, commands):
        self.command(*commands)
        return super()._note(commands)


@pytest.fixture
def stage():
    return AuditedStage()


def lease(rows, number=99, **changes):
    fields = {"task": "train", "epoch": 0, "batch_size": 10, "learning_rate": 0.1, "fence": 0}
    return Lease(number=number, start=rows[0], stop=rows[1], **fields | changes)


def trained(*rows, epoch=0):
    return Record(LeaseDone(0.0, epoch, "cpu-0", 10, 1, rows=list(rows)))


def rows_of(work):
    return work.start, work.stop


def test_a_correct_run_passes(stage):
    stage.work_on()
    assert stage.audit.finish == stage.finish
    assert (stage.audit.rows, stage.audit.epoch) == (100, 1)


@pytest.mark.parametrize("killed", [True, False])
def test_rows_of_a_worker_that_may_still_write_are_found(stage, killed):
    rows = rows_of(stage.work["a"][0])
    stage.command(Revoke(stage.numbers["a"]))
    with pytest.raises(InvariantViolation, match="may still be written"):
        stage.command(Send("b", lease(rows)))
    if killed:
        stage.command(Kill(1))
    else:  # it has died by itself
        stage.alive.remove("a")
    stage.command(Send("b", lease(rows)))


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (lease((90, 101)), "out of bounds"),
        (lease((90, 91), epoch=1), "another epoch"),
        (lease((90, 91), fence=1), "another fence value"),
        (lease((90, 91), batch_size=11), "beyond the limits"),
        (lease((79, 90)), "batches of different sizes"),
        (lease((90, 91), learning_rate=0.2), "another learning rate"),
        (lease((0, 20), task="validation"), "while others train"),
    ],
)
def test_a_wrong_lease_is_found(stage, work, found):
    with pytest.raises(InvariantViolation, match=found):
        stage.command(Send("a", work))


@pytest.mark.parametrize(
    "done",
    [
        [trained(0, 99)],
        [trained(0, 50), trained(40, 100)],
        [trained(0, 50), trained(0, 50), trained(50, 100)],
        [trained(0, 50), Quarantine(0, 40, 100)],
    ],
    ids=["missing", "overlapping", "twice", "quarantined twice"],
)
def test_an_epoch_with_a_row_missing_or_done_twice_is_found(stage, done):
    with pytest.raises(InvariantViolation, match="epoch 0 of 100 rows"):
        stage.command(*done, Record(EpochEnded(0, 100)))


def test_quarantined_rows_belong_to_their_epoch_alone(stage):
    stage.command(trained(0, 50), Quarantine(0, 50, 100))
    stage.command(Record(EpochEnded(0, 100)))
    stage.command(trained(0, 50, epoch=1), Record(EpochEnded(1, 50)))
    assert stage.audit.quarantined == 50


@pytest.mark.parametrize(
    "command", [Send("a", lease((90, 91))), Quarantine(0, 0, 1), Finish("failed")]
)
def test_after_the_end_workers_are_only_told_to_stop(stage, command):
    stage.command(Finish("finished"))
    stage.command(Send("a", Stop()))
    with pytest.raises(InvariantViolation, match="after the end"):
        stage.command(command)


def test_a_lease_that_was_reported_is_no_longer_held(stage):
    work = stage.work["a"][0]
    done = stage.answer(work)
    too_few = Done(work.number, 0, 0, 0.0, 0.0, 0, ())
    for key, ignored in (("b", done), ("a", too_few)):
        stage.audit.received(key, ignored)
        with pytest.raises(InvariantViolation, match="overlaps"):
            stage.command(Send("b", lease(rows_of(work))))
    stage.audit.received("a", done)
    stage.command(Send("b", lease(rows_of(work))))
