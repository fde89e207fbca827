import pytest

from hogbatch.wire.throttle import (
    BURST,
    INVALID,
    MAX_PEERS,
    MAX_STRIKES,
    PAUSE_S,
    RATE,
    VALID,
    Throttle,
)


def read_for(throttle, seconds, price):
    """The number of messages of this cost that can be read in this time."""
    now, read = 0.0, 0
    while now < seconds:
        now += throttle.pause(now) or 1e-6
        if not throttle.pause(now):
            throttle.charge(price, now)
            read += 1
    return read


def test_a_flood_is_read_at_a_bounded_rate():
    per_second = RATE / INVALID
    assert read_for(Throttle(0.0), 10.0, INVALID) == pytest.approx(10 * per_second, rel=0.1)


def test_as_many_honest_messages_as_workers_may_send_are_never_kept_waiting():
    throttle = Throttle(0.0)
    for n in range(10_000):
        throttle.charge(VALID, n / 10_000)
        assert throttle.pause(n / 10_000) == 0


def test_a_burst_is_read_at_once():
    throttle = Throttle(0.0)
    for _ in range(int(BURST)):
        throttle.charge(VALID, 0.0)
    assert throttle.pause(0.0) == 0
    throttle.charge(VALID, 0.0)
    assert throttle.pause(0.0) == PAUSE_S


def test_a_rest_is_short_whatever_was_read():
    throttle = Throttle(0.0)
    throttle.charge(1e9, 0.0)
    assert throttle.pause(0.0) == PAUSE_S
    assert throttle.pause(PAUSE_S) == 0
    for _ in range(5):
        throttle.charge(VALID, 2 * PAUSE_S)
    assert throttle.pause(2 * PAUSE_S) == 0, "nor do honest messages pay for it later"


def test_a_peer_is_out_after_its_strikes_and_no_other_is():
    throttle = Throttle(0.0)
    for _ in range(MAX_STRIKES - 1):
        throttle.strike(b"bad")
    assert not throttle.is_blocked(b"bad")
    throttle.strike(b"bad")
    assert throttle.is_blocked(b"bad") and not throttle.is_blocked(b"good")


def test_only_so_many_peers_are_remembered():
    throttle = Throttle(0.0)
    for peer in range(MAX_PEERS + 10):
        for _ in range(MAX_STRIKES):
            throttle.strike(str(peer).encode())
    assert not throttle.is_blocked(b"0") and throttle.is_blocked(str(MAX_PEERS + 9).encode())
    assert len(throttle._strikes) == MAX_PEERS
