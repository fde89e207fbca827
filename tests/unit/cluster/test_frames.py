import socket
import threading

import pytest

from hogbatch.cluster.frames import LENGTH, MAX_FRAME, FrameSocket
from hogbatch.config.train import MAX_SERVERS
from hogbatch.wire.codec import decode_to_worker, encode
from hogbatch.wire.messages import Servers


@pytest.fixture
def ends():
    own, other = FrameSocket.pair()
    theirs = FrameSocket(other.detach())
    yield own, theirs
    own.close()
    theirs.close()


@pytest.fixture
def send():
    """Call a function on another thread."""
    threads = []

    def start(function, *arguments):
        threads.append(threading.Thread(target=function, args=arguments))
        threads[-1].start()

    yield start
    for each in threads:
        each.join()


@pytest.mark.parametrize("size", [1, 1 << 16, MAX_FRAME])
def test_frames_of_any_size_arrive(ends, send, size):
    own, theirs = ends
    frame = (bytes(range(251)) * (size // 251 + 1))[:size]
    send(own.send, frame)
    assert theirs.wait() == frame
    own.send(b"next")
    own.send(b"one more")
    assert list(theirs.frames()) == [b"next", b"one more"] and list(theirs.frames()) == []


@pytest.mark.parametrize(
    ("sent", "ends_there"),
    [
        (LENGTH.pack(MAX_FRAME + 1), False),
        (LENGTH.pack(0), False),
        (LENGTH.pack(9) + b"part", True),
        (b"\1", True),
    ],
)
def test_what_is_not_a_frame_ends_the_connection(ends, sent, ends_there):
    own, theirs = ends
    own._connection.send(sent)
    if ends_there:
        own._connection.shutdown(1)
    assert list(theirs.frames()) == [] and theirs.ended


def test_a_frame_that_cannot_be_sent_ends_the_connection(ends):
    own, theirs = ends
    own._connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        own.send(bytes(MAX_FRAME))
    assert theirs.wait() == b"" and theirs.ended


def test_frames_of_several_threads_are_not_mixed(ends, send):
    own, theirs = ends
    frames = [bytes([letter]) * (5 << 16) for letter in b"abcd"]
    for frame in frames:
        send(own.send, frame)
    assert sorted(theirs.wait() for _ in frames) == frames


def test_the_addresses_of_all_servers_fit_into_a_frame(ends, send):
    own, theirs = ends
    longest = b"x" * (1 << 14)  # PlaneAddress
    servers = Servers(2**53, tuple(range(MAX_SERVERS)), (longest,) * MAX_SERVERS)
    send(own.send, encode(servers))
    assert decode_to_worker(theirs.wait()) == servers


def test_the_end_of_the_other_process_is_noticed(ends):
    own, theirs = ends
    with pytest.raises(ValueError, match="at most"):
        own.send(b"x" * (MAX_FRAME + 1))
    own.close()
    assert theirs.wait() == b"" and theirs.ended
    with pytest.raises(OSError):
        theirs.send(b"x")


def test_a_frame_may_end_the_other_process(ends, monkeypatch):
    own, theirs = ends
    send_fds = socket.send_fds

    def send_and_close(*arguments):
        sent = send_fds(*arguments)
        theirs.close()
        return sent

    monkeypatch.setattr(socket, "send_fds", send_and_close)
    own.send(b"kill")
    with pytest.raises(OSError, match="Broken pipe"):
        own.send(b"next")
