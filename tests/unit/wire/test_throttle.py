import pytest

from hogbatch.wire.throttle import (
    BURST,
    GARBAGE,
    HONEST,
    MAX_PEERS,
    RATE,
    REST_S,
    STRIKES,
    Throttle,
)


def read_for(throttle, seconds, price):
    """How many messages of that price are read in that time by one who reads whenever it may."""
    now, read = 0.0, 0
    while now < seconds:
        now += throttle.rest(now) or 1e-6
        if not throttle.rest(now):
            throttle.charge(price, now)
            read += 1
    return read


def test_a_flood_is_read_at_a_bounded_rate():
    per_second = RATE / GARBAGE
    assert read_for(Throttle(0.0), 10.0, GARBAGE) == pytest.approx(10 * per_second, rel=0.1)


def test_as_many_honest_messages_as_workers_may_send_are_never_kept_waiting():
    throttle = Throttle(0.0)
    for n in range(10_000):
        throttle.charge(HONEST, n / 10_000)
        assert throttle.rest(n / 10_000) == 0


def test_a_burst_is_read_at_once():
    throttle = Throttle(0.0)
    for _ in range(int(BURST)):
        throttle.charge(HONEST, 0.0)
    assert throttle.rest(0.0) == 0
    throttle.charge(HONEST, 0.0)
    assert throttle.rest(0.0) == REST_S


def test_a_rest_is_short_whatever_was_read():
    throttle = Throttle(0.0)
    throttle.charge(1e9, 0.0)
    assert throttle.rest(0.0) == REST_S
    assert throttle.rest(REST_S) == 0
    for _ in range(5):
        throttle.charge(HONEST, 2 * REST_S)
    assert throttle.rest(2 * REST_S) == 0, "nor do honest messages pay for it later"


def test_a_peer_is_out_after_its_strikes_and_no_other_is():
    throttle = Throttle(0.0)
    for _ in range(STRIKES - 1):
        throttle.strike(b"bad")
    assert not throttle.out(b"bad")
    throttle.strike(b"bad")
    assert throttle.out(b"bad") and not throttle.out(b"good")


def test_only_so_many_peers_are_remembered():
    throttle = Throttle(0.0)
    for peer in range(MAX_PEERS + 10):
        for _ in range(STRIKES):
            throttle.strike(str(peer).encode())
    assert not throttle.out(b"0") and throttle.out(str(MAX_PEERS + 9).encode())
    assert len(throttle._strikes) == MAX_PEERS
