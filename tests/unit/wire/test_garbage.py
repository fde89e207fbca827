"""Invalid frames are dropped and counted, and the next valid message is still read."""

import pytest
import zmq

from hogbatch.wire import sockets
from hogbatch.wire.messages import Heartbeat
from hogbatch.wire.sockets import MAX_FRAME, Dealer, Router
from tests.support.garbage_messages import MESSAGES, OVERSIZED
from tests.support.receiving import receive_until


@pytest.fixture
def router(tmp_path):
    router = Router(tmp_path)
    yield router
    router.close()


@pytest.fixture
def stranger(router):
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDTIMEO, 0)
        socket.connect(router.address)
        yield socket


@pytest.fixture
def worker(router):
    end = Dealer(router.address)
    yield end
    end.close()


def serve_until(router, condition):
    """The messages received until `condition` holds for them."""
    return [message for _, message in receive_until(router, condition)]


# The others are in test_codec.py: what follows depends on the number and the size of the frames.
@pytest.mark.parametrize(
    "name",
    [
        *("nothing", "a kind with control characters", "an older version"),
        *("lists in lists in lists", "a frame as large as may be"),
        *("two messages in one", "a message behind an empty frame", "many frames"),
    ],
)
def test_it_is_dropped_and_counted(router, stranger, worker, name, caplog):
    stranger.send_multipart(MESSAGES[name])
    assert serve_until(router, lambda seen: router.refused) == []
    worker.send(Heartbeat())
    assert serve_until(router, len) == [Heartbeat()]
    assert router.refused == 1
    (record,) = caplog.records
    assert len(record.getMessage()) < 300 and record.getMessage().isprintable()


def test_the_largest_frame_is_as_large_as_may_be():
    assert max(len(frame) for frames in MESSAGES.values() for frame in frames) == MAX_FRAME
    assert len(OVERSIZED[0]) == MAX_FRAME + 1


def test_a_flood_waits_in_its_sender_and_honest_messages_do_not_wait_behind_it(
    router, stranger, worker
):
    def flood():
        """Send as much as can be sent while nothing is read."""
        number = 0
        while stranger.poll(100, zmq.POLLOUT):
            stranger.send(b"rubbish")
            number += 1
        return number

    worker.send(Heartbeat())
    assert serve_until(router, len) == [Heartbeat()]
    sent = flood()
    serve_until(router, lambda seen: router.refused > 500)
    sent += flood()
    before = router.refused
    unread = sent - before
    assert unread > 900
    worker.send(Heartbeat())
    assert serve_until(router, len) == [Heartbeat()]
    assert router.refused - before < unread / 2, "peers are read in turn"


def test_nothing_is_read_for_some_time_after_an_invalid_message(
    router, stranger, worker, monkeypatch
):
    monkeypatch.setattr(sockets, "PAUSE_S", 1e9)
    stranger.send(b"rubbish")
    assert serve_until(router, lambda seen: router.refused) == []
    worker.send(Heartbeat())
    router.wait(0.1)
    assert list(router.receive()) == []
    router._paused_until = 0.0
    assert serve_until(router, len) == [Heartbeat()]


def test_what_lies_unread_is_limited_by_number(router):
    assert router._socket.getsockopt(zmq.RCVHWM) == 20
    assert router._socket.getsockopt(zmq.MAXMSGSIZE) == MAX_FRAME
