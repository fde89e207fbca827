"""A hundred simulated servers: the real decisions about merges, over a simulated link."""

import math

import pytest

from hogbatch.coordinator.merge_pace import MERGES_PER_EPOCH, MergeSettings
from hogbatch.coordinator.merges import Merges
from hogbatch.coordinator.plan import Limits, StoppingCriteria
from hogbatch.simulate.simulated_world import simulated_plan
from hogbatch.simulate.speed import Speed
from tests.simulation.audit import InvariantViolation
from tests.simulation.link import ServerLink, predicted_merge
from tests.simulation.merged_rows import check_models
from tests.simulation.simulated_servers import engine_of
from tests.simulation.unreliable import UnreliableServers

SERVERS = 100
ROWS, EPOCHS = 2_000_000, 2
SPEED = Speed("server", 50_000.0)
LINK = ServerLink(50e-6, 1.25e9)  # 10 Gbit/s


def world_of(
    servers=SERVERS, *, parameters=1_000_000, rows=ROWS, speed=SPEED, seed=0, restarts=0, **merging
):
    stopping = StoppingCriteria(EPOCHS, None, None, math.inf, "last", math.inf)
    plan = simulated_plan(stopping, Limits(None, None), (rows, 1000, 0), 0.1, 1.0, servers)
    merge_rows = merging.pop("merge_rows", rows // MERGES_PER_EPOCH)
    settings = MergeSettings(merge_rows, parameters, **merging)
    world = UnreliableServers(plan, settings, LINK, seed, restarts=restarts)
    for _ in range(servers):
        world.start_worker(speed)
    world.begin()
    return world


def run(world, until=120.0):
    world.run(until)
    assert world.finish is not None and world.finish.status == "finished"
    check_models(world)
    return world.merges


def while_training(world, act, seconds):
    """Call `act` each `seconds` seconds of training."""

    def tick():
        if world.state.phase == "train":
            act()
        world.queue.after(seconds, tick)

    tick()


def lose(world, seconds=0.02, count=10):
    """Let a server die each `seconds` seconds, until `count` are lost."""
    gone = []

    def kill():
        if len(gone) < count:
            gone.append(world.rng.choice(list(world.processes.values())))
            gone[-1].exit("killed by SIGKILL")

    while_training(world, kill, seconds)
    return gone


@pytest.mark.parametrize("parameters", [1_000_000, 20_000_000])
def test_merges_take_the_predicted_time_and_bytes(parameters):
    world = world_of(parameters=parameters)
    merges = run(world)
    expected = predicted_merge(parameters, SERVERS, LINK)
    passes = 2 * world.exchange.pass_seconds  # copying the change, adding the sum
    for each in merges[1:]:  # in the first one, the servers connect
        assert each.transfers == expected.transfers
        assert each.sent_bytes == expected.sent
        assert 0.0 < each.seconds - expected.seconds - passes < 0.003, "messages"
    assert merges[0].seconds > expected.seconds + 0.037


def test_merging_takes_at_most_its_share_of_the_time():
    share = 0.3
    world = world_of(20, rows=5_000_000, share=share)
    merges = run(world)
    merging = sum(each.seconds for each in merges)
    assert 0.7 * share < merging / world.state.progress.seconds(world.queue.now) < 1.1 * share


def test_each_merge_needs_few_messages_of_the_coordinator():
    world = world_of()
    merges = run(world)
    for name in ("Reduce", "Reduced", "Apply", "Applied"):
        assert world.messages[name] == SERVERS * len(merges)
    for name in ("Collect", "Collected", "Servers", "Connected"):
        assert world.messages[name] == SERVERS, "in the first merge only"


@pytest.mark.parametrize(("seed", "rule"), [(0, "adasum"), (1, "average")])
def test_the_rows_of_lost_servers_are_merged_exactly_once(seed, rule):
    world = world_of(seed=seed, rule=rule)
    gone = lose(world)
    merges = run(world)
    assert len(gone) == world.lost == 10 and len(world.processes) == SERVERS - 10
    assert world.repeated_rows > 0
    assert sum(each.rows for each in merges) == EPOCHS * ROWS
    final = next(iter(world.processes.values()))
    assert {engine_of(each).merged for each in gone}.isdisjoint({engine_of(final).merged})


def test_servers_that_are_started_again_get_the_model():
    world = world_of(20, rows=5_000_000, restarts=None)
    lose(world, 0.1)
    run(world)
    assert len(world.processes) == 20
    again = [worker for worker in world.state.workers.values() if worker.number >= 0]
    assert sum(worker.rows > 0 for worker in again) == 20


def test_silent_servers_are_lost_and_the_others_go_on():
    world = world_of(20, rows=5_000_000)
    stopped = []

    def stop():
        while len(stopped) < 3:
            stopped.append(world.processes[2 * len(stopped) + 1])
            stopped[-1].stop(1e6)

    while_training(world, stop, 1.0)
    run(world)
    assert world.lost == 3 and len(world.processes) == 20 - 3
    assert 10.0 < world.queue.now < 120.0


def test_a_merge_that_acknowledges_too_many_rows_is_found(monkeypatch):
    def acknowledge(self, key):
        worker = self.roster.attached[key]
        merged, worker.unmerged = worker.unmerged, []  # those since the copy, too
        worker.merged_leases += len(merged)
        return self.epochs.rows.merge(merged)

    monkeypatch.setattr(Merges, "_acknowledge", acknowledge)
    world = world_of(parameters=20_000_000, rows=5_000_000, share=0.9)  # leases end during merges
    lose(world, count=60)
    with pytest.raises(InvariantViolation, match="merged"):  # or lost
        run(world)
