"""Unreliable worlds do what they should; the audit does not see it."""

from random import Random
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from hogbatch.coordinator.commands import Quarantine, Revoke
from hogbatch.coordinator.merge_pace import MergeSettings
from hogbatch.simulate.speed import Speed
from hogbatch.wire.messages import Lease
from tests.simulation.link import ServerLink
from tests.simulation.scenario import draw_scenario
from tests.simulation.simulated_servers import ServersWorld
from tests.simulation.unreliable import Conditions, UnreliableEngine, UnreliableWorld
from tests.support.simulated_host import SimulatedHost


def world_of(scenario, **conditions):
    world = UnreliableWorld(scenario.resumed(None), Conditions(**conditions), 0)
    world.start_worker(Speed("cpu", 1000.0))
    world.begin()
    return world


@pytest.fixture
def given():
    """A scenario of a long run with checkpoints."""
    for seed in range(1000):
        plan = (found := draw_scenario(seed)).plan
        endless = plan.stopping.max_seconds is None and plan.train_rows > 9000
        if endless and plan.checkpoint_seconds <= 1 and plan.start_with == 1:
            return found
    raise AssertionError("no seed is such a scenario")


@pytest.mark.parametrize("not_finite_at", [None, "layers.0.weight[1, 2]"])
def test_a_killed_coordinator_continues_from_the_last_finite_model(given, not_finite_at):
    world, saved = world_of(given), []
    world.copy = lambda: not_finite_at
    world.run(8.0)
    world.crash(lambda found: saved.append(found) or given.resumed(found), 0.5)
    assert [each is None for each in saved] == [not_finite_at is not None]


def test_workers_are_restarted_as_often_as_the_conditions_say(given):
    world = world_of(given, restarts=2)

    def kill():
        for process in list(world.processes.values()):
            process.exit("killed")

    for second in range(1, 8):
        world.queue.at(second, kill)
    world.run(20.0)
    assert world.restarted == 2


def test_a_worker_whose_fence_is_raised_reports_no_rows(given):
    world = world_of(given)
    world.audit = Mock()  # it would find the leases that follow
    world.run(4.0)
    before = world.messages["Done"]
    world.run(4.5)
    reported = world.messages["Done"]
    world.actions[Revoke](Revoke(world.processes[1].number))
    world.run(5.0)
    assert before < reported == world.messages["Done"]
    assert world.processes[1].alive


def test_a_quarantined_row_kills_no_worker_in_later_epochs(given):
    world, rows = world_of(given, bad_rows=1), given.plan.train_rows
    epochs = [Lease(epoch, "train", epoch, 0, rows, 1, 0.1, 0) for epoch in range(3)]
    for epoch in range(2):
        world.write_order(epoch, 0)
    place = world.deadly_row(epochs[0])
    assert place is not None and world.deadly_row(epochs[1]) is not None
    world.actions[Quarantine](Quarantine(0, place, place + 1))
    world.write_order(2, 1)
    assert world.deadly_row(epochs[2]) is None


def test_a_server_whose_fence_is_raised_is_ended(given):
    world = ServersWorld(given.plan, MergeSettings(1, 10), ServerLink(1e-3, 1e9), 0)
    for _ in range(2):
        world.start_worker(Speed("server", 100.0))
    world.begin()
    world.run(0.5)
    first = world.processes[1]
    world.actions[Revoke](Revoke(first.number))
    assert not first.alive and list(world.processes) == [2]
    assert world.fence(first.number) == 1


def test_messages_are_lost_except_hello(given):
    world = world_of(given, loss=1.0)
    world.run(20.0)
    assert world.messages.keys() == {"Hello"}


def lease_of(number):
    return Lease(number, "train", 0, 10 * number, 10 * number + 10, 5, 0.1, 7)


def test_a_hung_worker_finishes_only_the_lease_in_progress_unless_a_row_kills_it():
    host = SimulatedHost(SimpleNamespace(fence=[7]))
    engine = UnreliableEngine(Speed("cpu", 100.0, startup=0.1), Random(0))
    engine.prepare(None, host)
    engine.submit(lease_of(0))
    engine.submit(lease_of(1))
    engine.hung = True
    host.run()
    engine.submit(lease_of(2))
    host.run()
    assert [done.lease for _, done in host.posted] == [0] and host.alive
    engine._queue.clear()
    engine.deadly_row = lambda given: given.start
    engine.submit(lease_of(3))
    host.run()
    assert host.exited == "killed by SIGSEGV"
