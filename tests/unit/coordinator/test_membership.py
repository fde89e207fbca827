"""Workers that join, leave, fail, fall silent or die."""

import pytest

from hogbatch.config.layers import DenseLayer
from hogbatch.coordinator import roster, workforce
from hogbatch.coordinator.commands import Kill, Record, Revoke, Send
from hogbatch.events.event import WorkerCompiles, WorkerJoined, WorkerLeft, WorkerLost, WorkerReady
from hogbatch.wire.messages import Failed, Heartbeat, Refused, Stop, Welcome
from tests.support.coordinator_stage import is_send, of_kind, records, works


def test_a_worker_is_welcomed_with_the_network(stage):
    play = stage()
    (welcome, joined) = play.hello("a", device="gpu", pid=77)
    assert welcome == Send(
        "a",
        Welcome(
            name="gpu-0",
            layers=(DenseLayer(5, 1, "linear"),),
            loss="logistic",
            optimizer=play.state.plan.training.optimizer,
            merge="delta",
            merge_every=1,
            staleness_damping="root",
            precision="bfloat16",
        ),
    )
    assert joined == Record(WorkerJoined("gpu-0", "gpu", 77))


def test_a_worker_that_compiles_its_kernels_is_reported_once(stage):
    play = stage()
    play.hello("a")
    assert play.receive("a", Heartbeat()) == []
    (told,) = records(play.receive("a", Heartbeat(compiling=True)), WorkerCompiles)
    assert told == WorkerCompiles("cpu-0")
    assert play.receive("a", Heartbeat(compiling=True)) == []
    play.ready("a")
    play.attach("b")
    assert not records(
        play.receive("b", Heartbeat(compiling=True)), "worker_compiles"
    )  # it is ready


def test_workers_are_numbered_by_device_and_names_are_not_reused(stage):
    play = stage("a", "b", "c")
    play.lose("b")
    play.attach("d")
    play.hello("e", device="gpu")
    names = {key: worker.name for key, worker in play.state.workers.items()}
    assert names == {"a": "cpu-0", "c": "cpu-2", "d": "cpu-3", "e": "gpu-0"}


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ({"fingerprint": "other"}, "dataset is abc123, this worker mapped other"),
        ({"package": "9.9.9"}, "hogbatch 0.1.0, this worker 9.9.9: install the same"),
        ({"device": "server"}, "expected a worker of this run"),
    ],
)
def test_a_worker_with_other_data_or_of_another_version_is_refused(stage, hello, reason):
    play = stage()
    (command,) = play.hello("a", **hello)
    assert is_send(command, Refused) and reason in command.message.reason
    assert not play.state.workers


def test_one_worker_too_many_is_refused(stage, monkeypatch):
    [monkeypatch.setattr(each, "MAX_WORKERS", 2) for each in (roster, workforce)]
    play = stage("a", "b")
    (command,) = play.hello("c")
    assert "this run has 2 workers" in command.message.reason
    play.goodbye("a")
    assert is_send(play.hello("c")[0], Welcome)


def test_rows_of_a_lost_worker_are_reassigned_after_its_fence_is_revoked(stage):
    play = stage("a", train_rows=40)
    lost = [[work.start, work.stop] for work in play.work["a"]]
    play.attach("b")
    while play.work["b"]:  # b does what is left and idles
        play.done("b")
    commands = play.lose("a")
    assert works(commands[: commands.index(Revoke(0))]) == []
    assert [(key, work.start, work.stop) for key, work in works(commands)] == [
        ("b", 0, 20),
        ("b", 20, 30),
    ]
    assert records(commands, WorkerLeft) == [WorkerLeft(worker="cpu-0", reissued=lost)]
    faults = play.state.totals(0.0).faults
    assert (faults.leases_reissued, faults.workers_lost) == (2, 1)
    play.work_on()
    assert play.finish.status == "finished"
    assert play.state.progress.rows == 40


def test_the_next_worker_with_the_same_fence_has_a_higher_value(stage, monkeypatch):
    [monkeypatch.setattr(each, "MAX_WORKERS", 1) for each in (roster, workforce)]
    play = stage()
    fences = []
    for key in "abc":
        fences += [work.fence for _, work in works(play.attach(key))]
        assert of_kind(play.lose(key), Revoke) == [Revoke(0)]
    assert fences == [0, 0, 1, 1, 2]  # rows on which two workers have died come one by one


def test_a_new_worker_gets_the_fence_that_was_revoked_least(stage):
    play = stage("a", "b")
    play.lose("a")
    play.attach("c")
    assert play.numbers == {"b": 1, "c": 2}


def test_a_worker_that_says_goodbye_is_not_lost(stage):
    play = stage("a", "b")
    commands = play.goodbye("a")
    assert of_kind(commands, Revoke) == [Revoke(0)]
    faults = play.state.totals(0.0).faults
    assert (faults.workers_lost, faults.leases_reissued) == (0, 2)


def test_a_worker_that_fails_is_lost_with_its_reason(stage):
    play = stage("a")
    commands = play.receive("a", Failed("out of memory"))
    assert records(commands, WorkerLost) == [WorkerLost("cpu-0", "out of memory")]


def test_a_worker_given_up_for_lost_is_told_to_stop(stage):
    play = stage("a", "b")
    late = play.answer(play.work["a"][0])
    play.lose("a")
    assert play.receive("a", late) == [Send("a", Stop())]
    assert play.state.progress.rows == 0
    assert play.lose("a") == []


def test_a_silent_worker_is_killed_and_its_rows_are_reassigned(stage):
    play = stage(train_rows=40)
    play.attach("a", pid=11)
    play.attach("b", pid=22)
    while play.work["b"]:
        play.done("b")
    commands = play.later(5.0, silent=["a"])
    assert of_kind(commands, Kill) == []
    commands = play.later(0.1, silent=["a"])
    assert of_kind(commands, Kill) == [Kill(11)]
    assert {key for key, _ in works(commands)} == {"b"}
    assert "silent for 5 s" in records(commands, WorkerLost)[0].reason


def test_a_silent_worker_without_leases_has_more_time(stage):
    play = stage()
    play.hello("a")  # it compiles
    assert of_kind(play.later(15.0, silent=["a"]), Kill) == []
    assert of_kind(play.later(0.1, silent=["a"]), Kill)


def test_a_worker_that_beats_but_does_not_come_to_an_end_is_given_up(stage):
    play = stage("a", train_rows=100_000)
    play.done("a")
    play.later(29.0)
    assert "a" in play.state.workers
    (lost,) = records(play.later(2.0), WorkerLost)
    assert lost.reason.startswith("did not finish lease ")


def test_a_gpu_without_given_limits_uses_what_it_measured(stage):
    play = stage(gpu=None)
    play.hello("a", device="gpu")
    (ready, *_) = play.ready("a", ((64, 0.010), (256, 0.011), (1024, 0.04), (4096, 0.16)))
    assert ready == Record(WorkerReady("gpu-0", (256, 256), 256))


@pytest.mark.parametrize(
    ("teams", "members", "largest"), [(8, 1, 64), (1, 8, 128), (2, 16, 256), (1, 256, 512)]
)
def test_the_batches_of_a_cpu_without_given_limits_follow_its_teams(stage, teams, members, largest):
    play = stage(cpu=None, train_rows=100_000)
    play.hello("a", threads=teams * members)
    (ready, *_) = play.ready("a", teams=teams, members=members)
    assert (ready.event.limits, ready.event.teams) == ((1, largest), (teams, members))
    assert play.state.workers["a"].view().teams == teams


def test_a_gpu_that_measured_nothing_is_lost_with_the_reason(stage):
    play = stage(gpu=None)
    play.hello("a", device="gpu")
    (lost, *_) = play.ready("a", ())
    assert lost == Record(WorkerLost("gpu-0", "sent no measured batch sizes"))
    assert not play.state.workers


def test_the_totals_contain_workers_that_have_left(stage):
    play = stage("a", "b", train_rows=10_000)
    play.done("a", updates=30)
    play.lose("a")
    play.done("b", updates=10)
    totals = play.state.totals(1.0)
    assert [(w.name, w.updates, w.update_share) for w in totals.workers] == [
        ("cpu-0", 30, 0.75),
        ("cpu-1", 10, 0.25),
    ]
    assert totals.rows == play.state.progress.rows == sum(w.rows for w in totals.workers)


def test_time_in_which_the_coordinator_was_stopped_is_no_wait_for_workers(stage):
    play = stage(wait_for_workers=20.0)
    play.later(1.0)
    play.now += 100.0  # SIGSTOP, SIGCONT: no tick
    play.later(0.1)
    assert play.finish is None


def test_a_late_worker_starts_level_in_weighted_updates(stage):
    play = stage(beta=0.5)
    play.attach("first", device="gpu")
    play.done("first", updates=100)
    play.attach("late", device="cpu")
    assert play.state.workers["late"].update_credit == 200
