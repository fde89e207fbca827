import pytest

from hogbatch.errors import UsageError
from hogbatch.policy.limits import useful_limits
from hogbatch.simulate.speed import GPU_HALF, Speed, parse_workers


def test_workers_are_numbers_and_speeds():
    assert parse_workers("cpu:16x2000rows/s, gpu:1x2e5rows/s@half=512") == [
        (16, Speed("cpu", 2000.0)),
        (1, Speed("gpu", 200_000.0, 512.0)),
    ]
    ((_, gpu),) = parse_workers("gpu:2x1000.5rows/s")
    assert (gpu.peak, gpu.half) == (1000.5, GPU_HALF)
    ((count, server),) = parse_workers("server:100x50000rows/s")
    assert (count, server) == (100, Speed("server", 50_000.0))
    assert server.profile() == ((1, 1 / 50_000),)


@pytest.mark.parametrize(
    "text",
    ["", "cpu", "cpu:16", "cpu:0x2000rows/s", "cpu:1x0rows/s", "tpu:1x1rows/s", "cpu:1x9e99rows/s"],
)
def test_an_invalid_list_is_refused_in_one_sentence(text):
    with pytest.raises(UsageError, match="expected a list such as 'cpu:16x2000rows/s"):
        parse_workers(text)


def test_the_number_of_workers_is_limited():
    with pytest.raises(UsageError, match="at most 16384"):
        parse_workers("cpu:16384x1rows/s,gpu:1x1rows/s")


def test_a_batch_of_half_has_half_of_the_peak():
    speed = Speed("gpu", 1000.0, half=100.0)
    assert 100 / speed.seconds(100, 100) == pytest.approx(500.0)
    assert 10**6 / speed.seconds(10**6, 10**6) == pytest.approx(1000.0, rel=1e-3)
    assert speed.seconds(1000, 100) == pytest.approx(10 * speed.seconds(100, 100))


def test_a_gpus_profile_gives_the_limits_that_its_speed_implies():
    # a half of the peak at half, nine tenths at nine times that; powers of two are tried
    assert useful_limits(Speed("gpu", 2e5, half=256.0).profile()) == (256, 4096)
    assert Speed("cpu", 2e5).profile() == ()


def test_servers_have_workers_of_their_own():
    assert len(parse_workers("server:2x100rows/s,server:3x50rows/s")) == 2
    with pytest.raises(UsageError, match="list servers only"):
        parse_workers("server:2x100rows/s,gpu:1x50rows/s")
