"""When the layers of a recorded batch were computed."""

from itertools import pairwise

import pytest

from hogbatch.replay.stages import middles
from tests.unit.rehearse.conftest import KINDS, given


@pytest.mark.parametrize("kind", KINDS)
def test_every_stage_has_a_time_within_its_batch(kind):
    made = given(kind)
    times = middles(made.network, made.train, made.welcome.lsh)
    assert len(times) == 2 * len(made.network.layers)
    assert times[0] > 0.0
    assert times[-1] < 1.0
    assert all(a < b for a, b in pairwise(times))


def test_times_are_in_proportion_to_the_multiplications():
    made = given("dense")
    first, second, third = made.network.layer_views()
    work = [made.train.features * first.fan_out]
    work += [layer.fan_in * layer.fan_out for layer in (second, third)]
    work += [2 * work[2], 2 * work[1], work[0]]
    expected = [(sum(work[:stage]) + work[stage] / 2) / sum(work) for stage in range(6)]
    assert middles(made.network, made.train) == pytest.approx(expected)
