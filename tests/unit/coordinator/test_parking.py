"""Workers that the batch policy parks: they evaluate, but get no training leases."""

import pytest

from hogbatch.coordinator.decisions import REVIEW_SECONDS
from hogbatch.coordinator.roster import HANDOVER_S
from hogbatch.errors import PolicyError
from hogbatch.events.event import WorkerParked, WorkerUnparked
from hogbatch.policy.base import Operation
from tests.support.coordinator_stage import records, works


class Parks:
    """Parks the workers on `device` as long as there is another one; the rest merge and weigh."""

    def __init__(self, device="cpu"):
        self.device = device

    def first_size(self, worker):
        return worker.smallest

    def next_size(self, worker, others):
        return worker.batch_size

    def decide(self, workers):
        if self.device == "broken":
            raise PolicyError("--policy mine:Broken: decide failed")
        parked = [worker.device == self.device for worker in workers]
        if all(parked):
            parked = [False] * len(workers)
        return [
            Operation(worker.smallest, merge_every=3, weight=0.5, trains=not parks, reason="slow")
            for worker, parks in zip(workers, parked, strict=True)
        ]


@pytest.fixture
def play(stage):
    """A CPU worker "c" and a GPU worker "g"; the CPU is parked."""
    play = stage(policy=Parks(), epochs=2, validation_rows=300)
    play.attach("g", device="gpu")
    play.attach("c")
    return play


def worker(play, key):
    return play.state.workers[key]


def test_a_parked_worker_evaluates_and_gets_no_rows_to_train_on(play):
    tasks = {(key, work.task) for key, work in works(play.work_on())}
    assert ("c", "validation") in tasks and ("c", "train") not in tasks
    assert play.finish.status == "finished" and worker(play, "g").rows == 2000
    assert records(play.said, WorkerParked) == [WorkerParked("cpu-0", "slow")]
    assert records(play.said, WorkerUnparked) == []


def test_a_parked_worker_trains_when_the_other_one_is_lost(play):
    commands = play.lose("g")
    assert records(commands, WorkerUnparked) == [WorkerUnparked("cpu-0")]
    play.work_on()
    assert play.finish.status == "finished" and worker(play, "c").rows > 0


def test_a_worker_that_joins_parks_those_that_train(stage):
    play = stage("c", policy=Parks("cpu"))
    held = list(play.work["c"])
    commands = play.attach("g", device="gpu")
    assert records(commands, WorkerParked) == [WorkerParked("cpu-0", "slow")]
    play.work_on()
    trained = sum(work.stop - work.start for work in held)
    assert worker(play, "c").rows == trained  # the leases that it held
    assert worker(play, "c").rows + worker(play, "g").rows == 1000


def test_merges_and_weights_are_part_of_each_lease(stage):
    play = stage(policy=Parks("none"), gpu=(100, 100), cpu=(10, 10))
    play.attach("g", device="gpu")
    play.attach("c")
    gpu, cpu = play.work["g"][0], play.work["c"][0]
    assert (gpu.merge_every, gpu.weight, gpu.learning_rate) == (3, 0.5, pytest.approx(0.1))
    assert (cpu.weight, cpu.learning_rate) == (1.0, pytest.approx(0.05))


def test_the_summary_has_the_seconds_for_which_a_worker_was_parked(play):
    play.now += 2.0
    cpu, gpu = sorted(play.state.totals(play.now).workers, key=lambda record: record.device)
    assert cpu.parked_seconds == pytest.approx(2.0) and gpu.parked_seconds == 0.0


def test_a_policy_decides_again_after_some_time(stage):
    times = []

    class Noted(Parks):
        def decide(self, workers):
            times.append(play.now)
            return super().decide(workers)

    play = stage(policy=Noted(), train_rows=10_000)
    play.attach("c")
    play.done("c")
    play.now = REVIEW_SECONDS
    play.done("c"), play.done("c")
    assert times == [0.0, REVIEW_SECONDS]


def test_a_policy_that_fails_to_decide_ends_the_run(stage):
    play = stage("c", policy=Parks("broken"))
    assert play.finish.by_policy and "decide failed" in play.finish.reason


class TestHandover:
    """The CPU worker "c" trains first, and is parked when the GPU worker "g" is ready."""

    @pytest.fixture
    def parked(self, stage):
        play = stage("c", policy=Parks(), epochs=None, train_rows=100_000)
        assert [work.task for work in play.work["c"]] == ["train", "train"]
        play.attach("g", device="gpu")
        return play

    def test_a_new_worker_waits_for_the_leases_of_one_that_was_just_parked(self, parked):
        assert not parked.work["g"]
        parked.done("c")
        assert not parked.work["g"]
        parked.done("c")
        assert parked.work["g"] and not parked.work["c"]

    def test_it_does_not_wait_long(self, parked):
        parked.later(HANDOVER_S / 2)
        assert not parked.work["g"]
        parked.later(HANDOVER_S)
        assert parked.work["g"] and parked.work["c"]

    def test_it_does_not_wait_for_a_worker_that_is_lost(self, parked):
        assert not worker(parked, "g").leases
        parked.state.lose("c", "it has exited", parked.now)
        assert worker(parked, "g").leases

    def test_a_worker_that_trains_already_goes_on(self, stage):
        play = stage("c", policy=Parks("none"), epochs=None, train_rows=100_000)
        play.attach("g", device="gpu")
        play.done("g")
        play.state.decisions.policy.device = "cpu"
        play.state.decisions.decide(play.state.progress.seconds(play.now))
        assert not worker(play, "c").trains and play.work["c"]
        assert works(play.done("g"))
