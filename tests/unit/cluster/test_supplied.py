"""The coordinator of one server, which is given its rows."""

import pytest

from hogbatch.cluster.supplied import SuppliedCoordinator
from hogbatch.coordinator.commands import Answer, Finish, MergeStep, Send, Shuffle
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.wire.messages import (
    Applied,
    Apply,
    Collect,
    Done,
    Heartbeat,
    Hello,
    Lease,
    Loaded,
    Ready,
    ServerWorkers,
    Stop,
    UseModel,
)
from tests.support.coordinator_stage import FINGERPRINT, PACKAGE, make_plan
from tests.support.row_invariants import check_rows


def lease(number, start, stop, task="train", epoch=0, rate=0.1):
    return Lease(number, task, epoch, start, stop, 256, rate, fence=0)


class Server:
    """A server with one worker, whose leases the test finishes."""

    def __init__(self, servers=1, **plan):
        made = make_plan(train_rows=1000, validation_rows=100, epochs=None, by_epoch=True, **plan)
        policy = Fixed(PolicySettings())
        self.state = SuppliedCoordinator(made, policy, address=b"here", servers=servers)
        self.answers, self.beats, self.work, self.steps, self.finish = [], [], [], [], None
        self._take(self.state.begin(0.0))
        self._take(self.state.tick(0.0))

    def attach(self, key="w", teams=1):
        hello = Hello("cpu", "cpu:1", 1, 1, PACKAGE, FINGERPRINT)
        self._take(self.state.receive(key, hello, 0.0))
        self._take(self.state.receive(key, Ready(((10, 0.01),), teams), 0.0))

    def order(self, message):
        self._take(self.state.order(message, 1.0))
        return self

    def later(self, now):
        """Let time pass until second `now`; return what was sent because of that."""
        before = len(self.beats)
        self._take(self.state.tick(now))
        return self.beats[before:]

    def work_off(self, key="w"):
        """Finish all leases of the worker; return them."""
        finished = []
        while self.work:
            each = self.work.pop(0)
            finished.append(each)
            rows = each.stop - each.start
            sums = {"loss": 0.5 * rows, "metric_sums": (1.0 * rows,), "extra_weight": -0.25 * rows}
            done = Done(each.number, rows, 1, 0.01 * rows, skipped=0, **sums)
            self._take(self.state.receive(key, done, 2.0))
        return finished

    def _take(self, commands):
        check_rows(self.state)
        for command in commands:
            match command:
                case Answer(Heartbeat() | ServerWorkers() as beat):
                    self.beats.append(beat)
                case Answer(message):
                    self.answers.append(message)
                case Send(_, Lease() as work):
                    self.work.append(work)
                case Shuffle(epoch, without):
                    self._take(self.state.order_ready(epoch, without, 1.0))
                case MergeStep():
                    self.steps.append(command)
                case Finish():
                    self.finish = command


@pytest.fixture
def server():
    made = Server()
    made.attach()
    return made


def test_it_is_ready_with_the_speed_of_its_workers(server):
    (ready,) = server.answers
    assert isinstance(ready, Ready) and ready.address == b"here"
    rows, seconds = ready.profile[0]
    assert rows / seconds == pytest.approx(1000.0)


def test_a_lease_is_done_when_its_workers_have_done_its_rows(server):
    server.order(lease(7, 100, 400)).order(lease(8, 400, 500))
    server.work_off()
    first, second = server.answers[1:]
    assert (first.lease, first.rows, first.loss) == (7, 300, 150.0)
    assert (second.lease, second.rows) == (8, 100)
    assert (first.seconds, second.seconds) == (1.0, 0.0), "the second one began when it ended"
    assert server.state.supply.trained == 2


def test_leases_are_as_long_as_usual_although_few_rows_are_supplied():
    server = Server(lease_seconds=1.0)
    server.attach(teams=2)
    server.order(lease(7, 0, 400))
    server.work_off()
    server.order(lease(8, 400, 520))
    assert server.work[0].stop - server.work[0].start == 100


def test_the_learning_rate_follows_the_roll_backs_of_all_servers(server):
    server.order(lease(7, 0, 100, rate=0.1 / 4))
    assert {work.learning_rate for work in server.work} == {0.1 / 4}


def test_test_rows_are_evaluated_and_training_goes_on(server):
    server.order(lease(7, 20, 60, task="validation"))
    assert server.state.phase == "evaluate"
    server.work_off()
    (done,) = server.answers[1:]
    assert (done.rows, done.metric_sums[0], done.extra_weight) == (40, 40.0, -10.0)
    server.order(lease(8, 0, 100))
    assert server.state.phase == "train" and server.work


def test_rows_are_evaluated_only_when_the_merged_model_is_in_place(server):
    server.order(Apply(1, sample=False))
    server.order(lease(7, 20, 60, task="validation"))
    assert not server.work
    server._take(server.state.exchanged(server.steps[0], Applied(1, 0.01), 1.0))
    assert server.work and server.answers[-1] == Applied(1, 0.01)


@pytest.mark.parametrize("changed", [True, False])  # then workers copy the model again
def test_no_row_is_trained_on_while_the_model_is_replaced(server, changed):
    server.order(UseModel()).order(lease(7, 0, 100))
    assert not server.work
    server._take(server.state.exchanged(server.steps[0], Loaded(changed=changed), 1.0))
    assert server.work and {work.rollbacks for work in server.work} == {int(changed)}


def test_a_merge_is_told_which_leases_are_in_the_model(server):
    server.order(lease(7, 0, 100))
    server.work_off()
    server.order(lease(8, 100, 200)).order(Collect(3))
    (step,) = server.steps
    assert (step.leases, step.rows) == (1, 100) and step.updates > 0


def test_rows_that_kill_workers_are_excluded_and_reported(server):
    server.order(lease(7, 0, 10))
    for death in range(3):
        server.work.clear()
        server._take(server.state.lose("w", "it died", 3.0))
        if death < 2:
            server.attach()
    (done,) = server.answers[1:]
    assert (done.lease, done.rows, done.skipped) == (7, 10, 10)


def test_without_workers_it_fails():
    alone = Server(wait_for_workers=5.0)
    for second in range(1, 7):
        alone._take(alone.state.tick(float(second)))
    assert alone.finish.status == "failed" and "no worker for 6 s" in alone.finish.reason


def test_once_a_second_it_tells_what_its_workers_have_done(server):
    server.order(lease(7, 0, 100))
    server.work_off()
    assert server.later(0.9) == []
    (told,) = server.later(2.0)
    (worker,) = told.workers
    assert (worker.name, worker.device, worker.threads) == ("cpu-0", "cpu", 1)
    assert (worker.state, worker.batch_size, worker.rows) == ("trains", 10, 100)
    assert worker.updates == server.state.roster.attached["w"].updates
    assert 0.0 < worker.busy <= 1.0 and told.others == 0


def test_it_sends_a_heartbeat_while_nothing_changes(server):
    assert server.beats == [Heartbeat()], "it had no workers"
    assert [type(each) for each in server.later(1.0)] == [ServerWorkers]
    assert server.later(1.5) == []
    assert server.later(2.0) == [Heartbeat()]
    server.order(lease(7, 0, 100))
    server.work_off()
    assert [type(each) for each in server.later(3.0)] == [ServerWorkers]


@pytest.mark.parametrize(("servers", "told"), [(2, 12), (10, 12), (20, 6), (100, 2)])
def test_one_of_many_servers_tells_rarely_and_sends_a_heartbeat_each_second(servers, told):
    server = Server(servers)
    server.attach()
    for second in range(1, 13):
        server.order(lease(second, 10 * second, 10 * second + 10))
        server.work_off()
        assert len(server.later(float(second))) == 1
    figures = [beat for beat in server.beats if isinstance(beat, ServerWorkers)]
    assert len(figures) == told and figures[-1].workers[0].rows > figures[0].workers[0].rows


def test_it_tells_nothing_after_its_end(server):
    server.order(Stop())
    assert server.later(9.0) == []
