import pytest

from hogbatch.cluster.link import ServerLink, fit
from hogbatch.errors import UsageError


def test_a_transfer_takes_the_latency_and_the_time_of_its_bytes():
    assert ServerLink(1e-3, 1e9).seconds(5e6) == pytest.approx(6e-3)


def test_a_fit_finds_the_link_of_exact_transfers():
    link = ServerLink(5e-5, 1.25e9)
    found = fit([(size, link.seconds(size)) for size in (0, 1e4, 1e6, 1e8)])
    assert found.latency == pytest.approx(link.latency)
    assert found.speed == pytest.approx(link.speed)


def test_a_fit_is_close_with_noise_of_a_tenth():
    link = ServerLink(5e-5, 1.25e9)
    noise = (1.1, 0.9, 1.05, 0.95)
    sizes = (0, 1e4, 1e6, 1e8)
    found = fit([(s, k * link.seconds(s)) for s, k in zip(sizes, noise, strict=True)])
    assert found.latency == pytest.approx(link.latency, rel=0.15)
    assert found.speed == pytest.approx(link.speed, rel=0.15)


@pytest.mark.parametrize(
    ("transfers", "reason"),
    [([(10, 1.0), (10, 1.1)], "two sizes"), ([(10, 1.0), (1000, 0.9)], "no longer")],
)
def test_transfers_that_tell_nothing_are_refused(transfers, reason):
    with pytest.raises(UsageError, match=reason):
        fit(transfers)
