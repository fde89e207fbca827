"""Simulated workers whose leases only take time."""

from random import Random
from types import SimpleNamespace

import pytest

from hogbatch.policy.limits import useful_limits
from hogbatch.simulate.speed import GPU_HALF, Speed, SpeedEngine, parse_workers
from hogbatch.wire.messages import Lease
from tests.support.simulated_host import SimulatedHost


def test_workers_are_numbers_and_speeds():
    assert parse_workers("cpu:16x2000rows/s, gpu:1x2e5rows/s@half=512") == [
        (16, Speed("cpu", 2000.0)),
        (1, Speed("gpu", 200_000.0, 512.0)),
    ]
    assert parse_workers("gpu:2x1000.5rows/s") == [(2, Speed("gpu", 1000.5, GPU_HALF))]


def test_a_gpus_profile_gives_the_limits_that_its_speed_implies():
    # a half of the peak at half, nine tenths at nine times that; powers of two are tried
    assert useful_limits(Speed("gpu", 2e5, half=256.0).profile()) == (256, 4096)
    assert Speed("cpu", 2e5).profile() == ()


@pytest.fixture
def host():
    return SimulatedHost(SimpleNamespace(fence=[7]))


@pytest.fixture
def engine(host):
    """A worker whose leases take 0.1 s."""
    made = SpeedEngine(Speed("cpu", 100.0, 0.0, 0.1, 0.0), Random(0))
    made.prepare(None, host)
    return made


def work(lease):
    return Lease(lease, "train", 0, 10 * lease, 10 * lease + 10, 5, 0.1, 7)


def test_leases_are_done_one_after_the_other(engine, host):
    for number in range(3):
        engine.submit(work(number))
    host.run()
    assert [done.lease for _, done in host.posted] == [0, 1, 2]
    assert [at for at, _ in host.posted] == pytest.approx([0.1, 0.2, 0.3])
