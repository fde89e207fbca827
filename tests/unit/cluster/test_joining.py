"""A server's process joins the run: it connects with the coordinator of all servers."""

import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.server import join_run, while_alive
from hogbatch.errors import DataError, ProtocolError
from hogbatch.wire.messages import Heartbeat, Refused
from hogbatch.wire.sockets import Dealer, Router, new_identity
from tests.support.wire_messages import WELCOME


@pytest.fixture
def join(tmp_path):
    """Join as a server with one thread; the coordinator answers, if there is an answer."""

    def join(answer=None):
        identity = new_identity()
        # the other settings of its start are not used for this
        plan = SimpleNamespace(identity=SimpleNamespace(fingerprint="f" * 32))
        own = {"workers": "cpu:1", "plan": plan, "parts": ()}
        start = SimpleNamespace(control=router.address, **own)
        thread = threading.Thread(target=coordinator, args=(answer, identity.hex()))
        if answer is not None:
            thread.start()
        with closing(Dealer(start.control, router.keys, identity)) as dealer:
            try:
                return join_run(dealer, start, (SimpleNamespace(threads=1),))
            finally:
                if answer is not None:
                    thread.join(WITHIN_S)

    def coordinator(answer, identity):
        deadline = time.monotonic() + WITHIN_S
        while not (received := list(router.receive())) and time.monotonic() < deadline:
            router.wait(WITHIN_S)
        ((key, hello),) = received
        assert (key, hello.device, hello.threads) == (identity, "server", 1)
        router.send(key, answer)

    with closing(Router(tmp_path, listen="127.0.0.1")) as router:
        yield join


def test_a_server_joins(join):
    assert join(WELCOME) == WELCOME


def test_a_server_that_is_refused_says_why(join):
    with pytest.raises(ProtocolError, match="has refused this server: other data"):
        join(Refused("other data"))


def test_a_coordinator_that_cannot_be_reached_is_named(join, monkeypatch):
    monkeypatch.setattr("hogbatch.cluster.server.ANSWER_WITHIN_S", 0.05)
    with pytest.raises(ProtocolError, match=r"at tcp://127\.0\.0\.1:\d+ has not answered"):
        join()


def test_a_server_that_reads_its_files_tells_that_it_is_alive(monkeypatch):
    monkeypatch.setattr("hogbatch.cluster.server.BEAT_S", 1e-3)
    told = threading.Semaphore(0)

    def send(message):
        assert message == Heartbeat()
        told.release()

    def read():
        assert all(told.acquire(timeout=WITHIN_S) for _ in range(3))
        raise DataError("part-1.svm has changed")

    with pytest.raises(DataError, match="has changed"):
        while_alive(SimpleNamespace(send=send), read)
