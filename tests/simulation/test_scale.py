"""With thousands of workers the message rate stays bounded for any lease length."""

import gc
import math
from random import Random

import pytest

from hogbatch.coordinator.plan import Limits, StoppingCriteria
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import PolicySettings
from hogbatch.simulate.simulated_world import SimulatedWorld, simulated_plan
from hogbatch.simulate.speed import Speed

MAX_MESSAGES_PER_S = 2000


@pytest.fixture
def uncollected():
    """Millions of live objects: garbage collection would take half of the time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("workers", [100, 3000])
def test_the_message_rate_is_bounded_however_many_workers_there_are(workers):
    plan = simulated_plan(
        StoppingCriteria(None, math.inf, None, math.inf, "last", math.inf),
        Limits((1, 64), None),
        (10**12, 0, 0),
        lease_seconds=0.001,
        beta=1.0,
        start_with=workers,
    )
    world = SimulatedWorld(Coordinator(plan, Adaptive(PolicySettings())), seed=0)
    rng = Random(0)
    for _ in range(workers):
        world.start_worker(Speed("cpu", rng.uniform(1000, 4000)))
    world.begin()
    lease = workers / 800  # seconds
    until = 10 + 2 * lease
    steady = max(lease, 5.0)
    world.run(until - steady)
    before = world.messages.total()
    world.run(until)
    rate = (world.messages.total() - before) / steady
    assert 0.5 * MAX_MESSAGES_PER_S < rate < MAX_MESSAGES_PER_S
    records = world.state.totals(until).workers
    busy = sum(record.busy for record in records) / workers
    assert busy > 0.7  # finished leases only; a lease of many workers takes seconds
