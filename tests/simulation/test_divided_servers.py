"""Simulated servers that hold some parts of the data each, and merge over a simulated link."""

import math
from dataclasses import replace

import pytest

from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.merge_pace import MERGES_PER_EPOCH, MergeSettings
from hogbatch.coordinator.plan import Limits, StoppingCriteria
from hogbatch.simulate.simulated_world import simulated_plan
from hogbatch.simulate.speed import Speed
from tests.simulation.audit import InvariantViolation
from tests.simulation.link import ServerLink
from tests.simulation.merged_rows import check_models
from tests.simulation.unreliable import UnreliableServers

LINK = ServerLink(50e-6, 1.25e9)  # 10 Gbit/s
ROWS = 819_200
ALTERNATING, TWO_AND_TWO = (1e4, 3e4, 1e4, 3e4), (1e4, 1e4, 3e4, 3e4)  # rows/s


def world_of(speeds, copies, parts=4, rows=ROWS, wait=math.inf, restarts=0, epochs=1):
    """Part p is on the servers p, p + 1, ...: as many as there are copies, modulo all."""
    stopping = StoppingCriteria(epochs, None, None, math.inf, "last", wait)
    plan = simulated_plan(stopping, Limits(None, None), (rows, 1000, 0), 0.1, 1.0, len(speeds))
    plan = replace(plan, parts={"train": (rows // parts,) * parts})
    merging = MergeSettings(rows // MERGES_PER_EPOCH, 100_000)
    world = UnreliableServers(plan, merging, LINK, 0, restarts=restarts)
    for place, peak in enumerate(speeds):
        held = (part for part in range(parts) if (place - part) % len(speeds) < copies)
        world.start_worker(Speed("server", peak), parts=tuple(held))
    world.begin()
    return world


def run(world):
    """Run to the end; return the training seconds."""
    world.run(1000.0)
    assert world.finish is not None and world.finish.status == "finished", world.finish
    check_models(world)
    return world.state.progress.seconds(world.queue.now)


def kill(world, place, at):
    """Let the server at `place` die `at` this time."""
    world.queue.at(at, lambda: world.processes[place + 1].exit("killed by SIGKILL"))


@pytest.mark.parametrize(
    ("speeds", "parts", "rows"),
    [(ALTERNATING, 4, ROWS), (TWO_AND_TWO, 64, ROWS), (ALTERNATING, 128, ROWS // 8)],
)
def test_two_copies_let_fast_servers_do_more(speeds, parts, rows):
    """Leases have at most 1000 and 3000 rows; with 128 parts, each part has 800."""
    seconds = run(world_of(speeds, 2, parts, rows))
    assert seconds == pytest.approx(rows / sum(speeds), rel=0.04)


def test_with_one_copy_the_slowest_server_decides():
    assert run(world_of(ALTERNATING, 1)) == pytest.approx(ROWS / 4 / 1e4, rel=0.03)


def test_an_epoch_ends_without_a_server_whose_parts_have_copies():
    world = world_of(ALTERNATING, 2, parts=16, wait=1.0)
    kill(world, 1, 6.0)
    seconds = run(world)
    assert len(world.processes) == 3 and world.repeated_rows > 0
    # Two slow servers have the only copies of its parts: some 115,000 rows each, in 11.5 s.
    assert 15.0 < seconds < 16.5


def test_a_run_waits_for_the_server_that_has_the_only_copy():
    world = world_of(ALTERNATING, 1, wait=30.0, restarts=1, epochs=2)
    kill(world, 1, 6.0)
    run(world)
    assert len(world.processes) == 4


def test_a_run_fails_without_a_server_that_has_the_only_copy():
    world = world_of(ALTERNATING, 1, wait=30.0)
    kill(world, 1, 6.0)
    world.run(1000.0)
    assert world.finish.status == "failed"
    assert world.finish.reason == "no server has had part 1 of the data for 30 s"
    done = world.state.epochs.rows
    assert 6 * 10_000 < done.left((0, 1, 2, 3)) <= ROWS // 4


def test_a_lease_to_a_server_without_the_part_is_found(monkeypatch):
    def take_any(self, lease, rows, parts):
        return take(self, lease, rows, (0, 1, 2, 3))

    take = Ledger.take
    monkeypatch.setattr(Ledger, "take", take_any)
    with pytest.raises(InvariantViolation, match="has not part"):
        run(world_of(ALTERNATING, 1))
