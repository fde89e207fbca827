import numpy as np
import pytest

from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.reduction import (
    SMALL,
    fastest,
    halving,
    halving_cost,
    ring,
    ring_cost,
)
from tests.support.pairs import pairs


@pairs(
    kind={"ring": (ring, ring_cost), "halving": (halving, halving_cost)},
    servers=[1, 2, 3, 7, 8, 9, 31],
)
def test_every_server_has_the_sum_at_the_cost_of_the_steps(kind, servers):
    schedule, found = kind[0](servers), kind[1](servers)
    models = np.random.default_rng(0).integers(0, 100, (servers, 3 * schedule.parts))
    total = models.sum(axis=0)
    parts = models.reshape(servers, schedule.parts, -1)
    sizes, added = [], []
    for step in schedule.steps:
        sent = [parts[each.sender, slice(*each.parts)].copy() for each in step]
        for each, values in zip(step, sent, strict=True):
            own = parts[each.receiver, slice(*each.parts)]
            own[:] = own + values if each.then == "add" else values
        for ends in ([each.sender for each in step], [each.receiver for each in step]):
            assert len(set(ends)) == len(ends), "one part at a time"
        sizes.append(max(map(len, sent)) / schedule.parts)
        added.append(sizes[-1] * (step[0].then == "add"))
    assert (models == total).all()
    steps = found.name, found.steps, found.messages
    assert steps == (schedule.name, len(schedule.steps), sum(map(len, schedule.steps)))
    assert (found.models, found.added) == pytest.approx((sum(sizes), sum(added)))


@pytest.mark.parametrize("servers", [2, 4, 64, 128])
def test_halving_is_never_slower_for_powers_of_two(servers):
    assert [fastest(servers, parameters) for parameters in (0, 1, 10**9)] == ["halving"] * 3


@pytest.mark.parametrize("servers", [3, 5, 7, 48, 100, 127])
def test_the_schedule_of_a_run_is_the_fastest_on_the_usual_link(servers):
    usual = ServerLink(latency=50e-6, speed=4 * SMALL / 50e-6)
    for parameters in (10**3, 10**4, 10**5, 10**6, 10**7, 10**8):
        both = {
            cost.name: cost.steps * usual.latency + cost.models * 4 * parameters / usual.speed
            for cost in (ring_cost(servers), halving_cost(servers))
        }
        assert both[fastest(servers, parameters)] == min(both.values())
