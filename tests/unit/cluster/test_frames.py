import threading

import pytest

from hogbatch.cluster.frames import MAX_FRAME, PACKET, FrameSocket
from hogbatch.config.train import MAX_SERVERS
from hogbatch.wire.codec import decode_to_worker, encode
from hogbatch.wire.messages import Servers


@pytest.fixture
def ends():
    own, other = FrameSocket.pair()
    theirs = FrameSocket(other)
    yield own, theirs
    own.close()
    theirs.close()


def test_frames_arrive_whole_and_in_order(ends):
    own, theirs = ends
    own.send(b"first")
    own.send(b"x" * 3 * PACKET)
    assert list(theirs.frames()) == [b"first", b"x" * 3 * PACKET]
    assert list(theirs.frames()) == [] and not theirs.ended


@pytest.mark.parametrize("size", [1, PACKET - 1, PACKET, PACKET + 1, 2 * PACKET, MAX_FRAME])
def test_frames_of_any_size_arrive(ends, size):
    own, theirs = ends
    frame = bytes(range(251)) * (size // 251 + 1)
    sender = threading.Thread(target=own.send, args=(frame[:size],))
    sender.start()
    assert theirs.wait() == frame[:size]
    sender.join()
    own.send(b"next")
    assert theirs.wait() == b"next"


def test_a_part_of_a_frame_is_kept_until_the_rest_arrives(ends):
    own, theirs = ends
    raw = own._connection
    raw.send(b"\1one ")
    assert list(theirs.frames()) == []
    raw.send(b"\1two ")
    assert list(theirs.frames()) == [] and not theirs.ended
    raw.send(b"\0three")
    assert list(theirs.frames()) == [b"one two three"]


def test_what_is_not_a_frame_ends_the_connection(ends):
    own, theirs = ends
    own._connection.send(b"\2")
    assert theirs.wait() == b"" and theirs.ended


def test_a_frame_without_end_ends_the_connection(ends):
    own, theirs = ends

    def send():
        for _ in range(4 * MAX_FRAME // PACKET):
            try:
                own._connection.send(b"\1" + bytes(PACKET))
            except OSError:
                return

    sender = threading.Thread(target=send)
    sender.start()
    assert theirs.wait() == b"" and theirs.ended
    theirs.close()
    sender.join()


def test_a_frame_that_cannot_be_sent_ends_the_connection(ends):
    own, theirs = ends
    own._connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        own.send(bytes(MAX_FRAME))
    while theirs.wait():
        pass
    assert theirs.ended


def test_frames_of_several_threads_are_not_mixed(ends):
    own, theirs = ends
    frames = [bytes([letter]) * 5 * PACKET for letter in b"abcd"]
    senders = [threading.Thread(target=own.send, args=(frame,)) for frame in frames]
    for each in senders:
        each.start()
    assert sorted(theirs.wait() for _ in frames) == frames
    for each in senders:
        each.join()


def test_the_addresses_of_all_servers_fit_into_a_frame(ends):
    own, theirs = ends
    longest = b"x" * (1 << 14)  # PlaneAddress
    servers = Servers(2**53, tuple(range(MAX_SERVERS)), (longest,) * MAX_SERVERS)
    sender = threading.Thread(target=own.send, args=(encode(servers),))
    sender.start()
    assert decode_to_worker(theirs.wait()) == servers
    sender.join()


def test_waiting_ends_with_a_frame_or_the_other_process(ends):
    own, theirs = ends
    sender = threading.Timer(0.05, own.send, (b"late",))
    sender.start()
    assert theirs.wait() == b"late"
    sender.join()
    own.close()
    assert theirs.wait() == b"" and theirs.ended


def test_a_frame_that_is_too_long_is_not_sent(ends):
    with pytest.raises(ValueError, match="at most"):
        ends[0].send(b"x" * (MAX_FRAME + 1))


def test_sending_to_a_process_that_has_ended_is_an_error(ends):
    own, theirs = ends
    theirs.close()
    with pytest.raises(OSError):
        own.send(b"x")
