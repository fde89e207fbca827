import threading

import pytest

from hogbatch.distributed.frames import MAX_FRAME, FrameSocket


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
    own.send(b"x" * MAX_FRAME)
    assert list(theirs.frames()) == [b"first", b"x" * MAX_FRAME]
    assert list(theirs.frames()) == [] and not theirs.ended


def test_waiting_ends_with_a_frame_or_the_other_process(ends):
    own, theirs = ends
    threading.Timer(0.05, own.send, (b"late",)).start()
    assert theirs.wait() == b"late"
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
