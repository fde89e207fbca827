"""With ten thousand workers the message rate stays bounded for any lease length."""

import gc
import math
from random import Random

import pytest

from hogbatch.coordinator.plan import Limits, StoppingCriteria
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import PolicySettings
from hogbatch.simulate.scenario import simulated_plan, simulated_world, start_worker
from hogbatch.simulate.simulated_model import Conditions
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
@pytest.mark.parametrize("workers", [100, 10_000])
def test_the_message_rate_is_bounded_however_many_workers_there_are(workers):
    plan = simulated_plan(
        StoppingCriteria(None, math.inf, None, math.inf, "last", math.inf),
        Limits((1, 64), None),
        (10**12, 0),
        lease_seconds=0.001,
        beta=1.0,
        start_with=workers,
    )
    world = simulated_world(plan, Adaptive(PolicySettings()), Conditions(), seed=0)
    rng = Random(0)
    for _ in range(workers):
        start_worker(world, Speed("cpu", rng.uniform(1000, 4000)))
    world.begin()
    lease = workers / 800  # seconds
    until = 10 + 2 * lease
    world.run(until)
    steady = range(int(until - max(lease, 5.0)), int(until))
    rate = sum(world.all_messages[second] for second in steady) / len(steady)
    assert 0.5 * MAX_MESSAGES_PER_S < rate < MAX_MESSAGES_PER_S
    records = world.state.totals(until).workers
    busy = sum(record.busy for record in records) / workers
    assert busy > 0.7  # finished leases only; a lease takes ten seconds
