import numpy as np
import pytest

from hogbatch.cluster.decisions.estimate import Task, merge_of
from hogbatch.cluster.decisions.link import ServerLink
from hogbatch.cluster.decisions.reduction import (
    SMALL,
    fastest,
    halving,
    halving_cost,
    ring,
    ring_cost,
)

SERVERS = [2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 100]
schedules = pytest.mark.parametrize(
    ("made", "cost"), [(ring, ring_cost), (halving, halving_cost)], ids=["ring", "halving"]
)


def carry_out(schedule, models):
    """Carry out all steps; what is sent in a step is what the sender had before the step."""
    parts = models.reshape(len(models), schedule.parts, -1)
    for step in schedule.steps:
        sent = [parts[each.sender, slice(*each.parts)].copy() for each in step]
        for each, values in zip(step, sent, strict=True):
            own = parts[each.receiver, slice(*each.parts)]
            own[:] = own + values if each.then == "add" else values


@schedules
@pytest.mark.parametrize("servers", SERVERS)
def test_every_server_has_the_sum(made, cost, servers):
    schedule = made(servers)
    models = np.random.default_rng(0).integers(0, 100, (servers, 3 * schedule.parts))
    total = models.sum(axis=0)
    carry_out(schedule, models)
    assert (models == total).all()


@schedules
@pytest.mark.parametrize("servers", SERVERS)
def test_the_cost_is_that_of_the_steps(made, cost, servers):
    schedule, found = made(servers), cost(servers)
    assert found.name == schedule.name
    assert found.steps == len(schedule.steps)
    assert found.messages == sum(map(len, schedule.steps))
    largest = [
        max((stop - start) / schedule.parts for _, _, (start, stop), _ in step)
        for step in schedule.steps
    ]
    added = [
        size for size, step in zip(largest, schedule.steps, strict=True) if step[0].then == "add"
    ]
    assert found.models == pytest.approx(sum(largest))
    assert found.added == pytest.approx(sum(added))


@schedules
def test_a_server_sends_and_receives_one_part_at_a_time(made, cost):
    for servers in SERVERS:
        for step in made(servers).steps:
            for end in ("sender", "receiver"):
                ends = [getattr(each, end) for each in step]
                assert len(set(ends)) == len(ends)


@schedules
def test_a_server_moves_about_two_models_whatever_their_number(made, cost):
    for servers in SERVERS:
        limit = 2.0 if made is ring or servers & (servers - 1) == 0 else 4.0
        assert cost(servers).models < limit


@schedules
def test_one_server_sends_nothing(made, cost):
    assert made(1).steps == () and cost(1) == (made(1).name, 0, 0, 0.0, 0.0)


@pytest.mark.parametrize("servers", [2, 4, 64, 128])
def test_halving_is_never_slower_for_powers_of_two(servers):
    assert [fastest(servers, parameters) for parameters in (0, 1, 10**9)] == ["halving"] * 3


@pytest.mark.parametrize("servers", [3, 5, 6, 7, 12, 48, 65, 100, 127])
def test_the_schedule_of_a_run_is_the_fastest_on_the_usual_link(servers):
    usual = ServerLink(latency=50e-6, speed=4 * SMALL / 50e-6)
    for parameters in (10**3, 10**4, 10**5, 10**6, 10**7, 10**8):
        both = {
            cost.name: cost.steps * usual.latency + cost.models * 4 * parameters / usual.speed
            for cost in (ring_cost(servers), halving_cost(servers))
        }
        assert both[fastest(servers, parameters)] == min(both.values())


def test_a_hundred_servers_merge_a_megabyte_in_few_steps():
    assert (fastest(100, 10**5), fastest(3, 10**5)) == ("halving", "ring")
    assert merge_of(Task(10**5, 1, 1.0, 1.0), 100, ServerLink(50e-6, 1.25e9)).cost.steps == 14
