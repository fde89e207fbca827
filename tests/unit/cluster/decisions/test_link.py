import pytest

from hogbatch.cluster.decisions.link import ServerLink


def test_a_transfer_takes_the_latency_and_the_time_of_its_bytes():
    assert ServerLink(1e-3, 1e9).seconds(5e6) == pytest.approx(6e-3)
