"""A server's process joins the run: it connects with the coordinator of all servers."""

import threading
from contextlib import closing
from types import SimpleNamespace

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.start import UpstreamAddress
from hogbatch.cluster.upstream import join_run, while_alive
from hogbatch.errors import DataError, ProtocolError
from hogbatch.wire.messages import Heartbeat, Refused
from hogbatch.wire.sockets import Dealer, Router, new_identity
from tests.support.wire_messages import WELCOME


def join(upstream):
    """Join as a server with one thread; the other settings of its start are not used for this."""
    start = SimpleNamespace(upstream=upstream, workers="cpu:1", fingerprint="f" * 32, parts=None)
    with closing(Dealer(upstream.control, upstream.keys, upstream.identity)) as dealer:
        return join_run(dealer, start, (SimpleNamespace(threads=1),))


def answered(router, answer, upstream):
    """What `join` returns if the coordinator answers with this message, and the joining key."""
    keys = []

    def coordinator():
        while not keys:
            router.wait(WITHIN_S)
            for key, hello in router.receive():
                assert (hello.device, hello.threads) == ("server", 1)
                router.send(key, answer)
                keys.append(key)

    thread = threading.Thread(target=coordinator)
    thread.start()
    try:
        return join(upstream), keys
    finally:
        thread.join(WITHIN_S)


@pytest.fixture
def router(tmp_path):
    with closing(Router(tmp_path, listen="tcp://127.0.0.1:*")) as made:
        yield made


@pytest.fixture
def upstream(router):
    return UpstreamAddress(router.address, router.keys, new_identity())


def test_the_coordinator_knows_a_server_by_the_identity_that_it_was_given(router, upstream):
    welcome, keys = answered(router, WELCOME, upstream)
    assert welcome == WELCOME and keys == [upstream.identity.hex()]


def test_a_server_that_is_refused_says_why(router, upstream):
    with pytest.raises(ProtocolError, match="has refused this server: other data"):
        answered(router, Refused("other data"), upstream)


def test_a_coordinator_that_cannot_be_reached_is_named(router, upstream, monkeypatch):
    monkeypatch.setattr("hogbatch.cluster.upstream.ANSWER_WITHIN_S", 0.05)
    with pytest.raises(ProtocolError, match=r"at tcp://127\.0\.0\.1:\d+ has not answered"):
        join(upstream)  # `router` does not read


def test_a_server_that_reads_its_files_tells_that_it_is_alive(monkeypatch):
    monkeypatch.setattr("hogbatch.cluster.upstream.BEAT_S", 1e-3)
    sent, enough = [], threading.Event()

    def send(message):
        sent.append(message)
        if len(sent) == 3:
            enough.set()

    def read():
        assert enough.wait(WITHIN_S)
        return "rows"

    dealer = SimpleNamespace(send=send)
    assert while_alive(dealer, read) == "rows"
    assert set(sent) == {Heartbeat()}


def test_what_goes_wrong_while_a_server_reads_is_raised():
    def read():
        raise DataError("part-1.svm has changed")

    with pytest.raises(DataError, match="has changed"):
        while_alive(SimpleNamespace(send=list), read)
