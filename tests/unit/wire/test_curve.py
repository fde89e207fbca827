"""Authentication over tcp, with real sockets on the loopback interface."""

import socket
import time
from contextlib import suppress

import pytest
import zmq

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.wire.curve import Keys
from hogbatch.wire.messages import Heartbeat
from hogbatch.wire.sockets import Dealer, Router
from tests.support.receiving import receive_until
from tests.support.wire_messages import HELLO, WELCOME


@pytest.fixture
def router(request, tmp_path):
    listen = getattr(request, "param", "127.0.0.1")
    if ":" in listen and not has_ipv6():
        pytest.skip("there is no IPv6 on the loopback interface")
    router = Router(tmp_path, listen=listen)
    yield router
    router.close()


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def worker(router, keys):
    end = Dealer(router.address, keys)
    end.send(HELLO)
    return end


def new_pair():
    return [key.decode() for key in zmq.curve_keypair()]


@pytest.mark.parametrize("router", ["127.0.0.1", "::1"], indirect=True)
def test_a_worker_with_the_keys_is_let_in_and_answered(router):
    end = worker(router, router.keys)
    ((key, message),) = receive_until(router, len)
    assert message == HELLO and router.rejected == 0
    assert router.send(key, WELCOME)
    end.wait(WITHIN_S)
    assert end.receive() == WELCOME
    end.close()


STRANGERS = {
    "no keys": lambda keys: None,
    "another pair": lambda keys: Keys(keys.server, *new_pair()),
    "another secret": lambda keys: Keys(keys.server, keys.public, new_pair()[1]),
    "another server": lambda keys: Keys(new_pair()[0], keys.public, keys.secret),
    "the server's own key": lambda keys: Keys(keys.server, keys.server, keys.secret),
}


@pytest.mark.parametrize("shown", STRANGERS.values(), ids=STRANGERS)
def test_nobody_else_is_and_that_is_counted(router, shown):
    stranger = worker(router, shown(router.keys))
    assert receive_until(router, lambda seen: router.rejected > 0) == []
    honest = worker(router, router.keys)
    ((key, _),) = receive_until(router, len)
    with suppress(ProtocolError):  # if it has been told to go away for good
        stranger.send(Heartbeat())
    honest.send(Heartbeat())
    assert receive_until(router, len) == [(key, Heartbeat())]
    assert stranger.receive() is None
    stranger.close()
    honest.close()


def test_a_worker_that_is_turned_away_does_not_wait_for_ever(router):
    stranger = worker(router, STRANGERS["another pair"](router.keys))
    receive_until(router, lambda seen: router.rejected > 0)
    deadline = time.monotonic() + WITHIN_S
    with pytest.raises(ProtocolError, match="does not accept messages of this worker"):
        while time.monotonic() < deadline:
            stranger.send(Heartbeat())
            router.wait(0.001)
    stranger.close()


@pytest.mark.parametrize(
    "noise",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000, b"\xff" + bytes(8) + b"\x7f\x03\x00NULL", b""],
    ids=["http", "ones", "greeting without encryption", "nothing"],
)
def test_what_is_not_zeromq_disturbs_nobody(router, noise):
    host, port = router.address.removeprefix("tcp://").rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port))) as rude:
        rude.sendall(noise)
        honest = worker(router, router.keys)
        assert [message for _, message in receive_until(router, len)] == [HELLO]
        honest.close()


def test_what_cannot_be_had_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"cannot listen for servers on 192\.0\.2\.1: .*assign"):
        Router(tmp_path, listen="192.0.2.1")
    monkeypatch.setattr(zmq, "has", lambda capability: False)
    with pytest.raises(UsageError, match="several servers need encryption"):
        Router(tmp_path, listen="127.0.0.1")
