"""Both implementations of the channels behave the same: ZeroMQ sockets and the loopback."""

import os
import time
from contextlib import ExitStack

import pytest
import zmq

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import ProtocolError
from hogbatch.wire.codec import PROTOCOL, encode
from hogbatch.wire.messages import Ready, Refused, Stop
from hogbatch.wire.sockets import MAX_FRAME, Dealer, Router
from tests.support.loopback import Loopback
from tests.support.receiving import receive_until
from tests.support.wire_messages import DONE, HELLO, TO_COORDINATOR, TO_WORKER, WELCOME, WORK


class SocketPlane:
    """A Router in a directory, and workers' channels connected to it."""

    def __init__(self, run_dir):
        self._undo = ExitStack()
        self._context = self._undo.enter_context(zmq.Context())
        self.coordinator = Router(run_dir)
        self._undo.callback(self.coordinator.close)

    def worker(self):
        dealer = Dealer(self.coordinator.address)
        self._undo.callback(dealer.close)
        return dealer

    def stranger(self):
        """A plain socket, which can send invalid frames."""
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 500)
        socket.connect(self.coordinator.address)
        self._undo.callback(socket.close)
        return socket

    def close(self):
        self._undo.close()


class LoopbackPlane:
    """The same interface without sockets."""

    def __init__(self):
        self.coordinator = Loopback()
        self._names = iter("abcdef")

    def worker(self):
        return self.coordinator.connect(next(self._names))

    def close(self):
        self.coordinator.close()


@pytest.fixture
def sockets(tmp_path):
    plane = SocketPlane(tmp_path)
    yield plane
    plane.close()


@pytest.fixture(params=["sockets", "loopback"])
def plane(request):
    if request.param == "sockets":
        yield request.getfixturevalue("sockets")
        return
    plane = LoopbackPlane()
    yield plane
    plane.close()


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def arrivals(coordinator, number):
    """The next `number` messages to the coordinator, as (key, message)."""
    return receive_until(coordinator, lambda seen: len(seen) == number)


def answers(worker, number):
    """The next `number` messages to a worker."""
    seen = []
    while len(seen) < number:
        assert worker.wait(WITHIN_S) == [], "no descriptor is watched"
        while (message := worker.receive()) is not None:
            seen.append(message)
    return seen


def wait_for_refusals(coordinator, number):
    assert receive_until(coordinator, lambda seen: coordinator.refused == number) == []


def test_every_message_crosses_both_ways_in_order(plane):
    worker = plane.worker()
    for message in TO_COORDINATOR:
        worker.send(message)
    seen = arrivals(plane.coordinator, len(TO_COORDINATOR))
    assert [message for _, message in seen] == TO_COORDINATOR
    (key,) = {key for key, _ in seen}
    assert all(plane.coordinator.send(key, message) for message in TO_WORKER)
    assert answers(worker, len(TO_WORKER)) == TO_WORKER


def test_each_worker_has_a_key_and_letters_of_its_own(plane):
    one, other = plane.worker(), plane.worker()
    one.send(HELLO)
    ((key_of_one, _),) = arrivals(plane.coordinator, 1)
    other.send(DONE)
    ((key_of_other, _),) = arrivals(plane.coordinator, 1)
    assert key_of_one != key_of_other
    plane.coordinator.send(key_of_other, WORK)
    plane.coordinator.send(key_of_one, WELCOME)
    assert answers(one, 1) == [WELCOME]
    assert answers(other, 1) == [WORK]


def test_sending_to_an_unknown_key_says_so(plane):
    assert not plane.coordinator.send(b"nobody".hex(), Stop())


def test_the_coordinator_wakes_for_a_watched_descriptor_until_it_is_unwatched(plane, pipe):
    readable, writable = pipe
    plane.coordinator.watch(readable)
    assert plane.coordinator.wait(0) == []
    os.write(writable, b"!")
    assert plane.coordinator.wait(WITHIN_S) == [readable]
    plane.coordinator.unwatch(readable)
    assert plane.coordinator.wait(0) == []


# Sockets alone ------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [None, "control.socket"])  # by a coordinator that was killed
@pytest.mark.parametrize("folders", [(), ("x" * 90, "y" * 90)])  # longer than a socket's address
def test_the_socket_has_no_name_in_the_run_directory(tmp_path, folders, left):
    run_dir = tmp_path.joinpath(*folders)
    run_dir.mkdir(parents=True, exist_ok=True)
    if left:
        (run_dir / left).touch()
    plane = SocketPlane(run_dir)
    worker = plane.worker()
    worker.send(HELLO)
    ((key, _),) = arrivals(plane.coordinator, 1)
    assert plane.coordinator.send(key, WELCOME)
    assert answers(worker, 1) == [WELCOME]
    assert list(run_dir.iterdir()) == []
    plane.close()
    assert list(run_dir.iterdir()) == []


def test_an_oversized_frame_costs_its_sender_the_line_and_nobody_else(sockets):
    worker, stranger = sockets.worker(), sockets.stranger()
    worker.send(HELLO)
    ((key, _),) = arrivals(sockets.coordinator, 1)
    with stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        frame = encode(Ready(((1, 1.0),) * 10_000))
        assert len(frame) > MAX_FRAME
        stranger.send(frame)
        assert monitor.poll(WITHIN_S * 1000)
        stranger.disable_monitor()
    worker.send(DONE)
    assert arrivals(sockets.coordinator, 1) == [(key, DONE)]
    assert sockets.coordinator.send(key, WORK)
    assert answers(worker, 1) == [WORK]


def test_a_worker_of_another_version_is_told_why(sockets):
    stranger = sockets.stranger()
    stranger.send(b"HB\xff\x00" + encode(HELLO)[4:])
    wait_for_refusals(sockets.coordinator, 1)
    assert stranger.poll(WITHIN_S * 1000)
    refusal = stranger.recv()
    told = f"protocol {PROTOCOL}, this worker 255: install the same hogbatch"
    assert told.encode() in refusal
    assert refusal[:5] == encode(Refused(""))[:5]


def test_refusals_are_logged_once_a_minute(sockets, caplog):
    stranger = sockets.stranger()
    for _ in range(50):
        stranger.send(b"rubbish")
    wait_for_refusals(sockets.coordinator, 50)
    assert len(caplog.records) == 1


def test_a_worker_that_has_hung_up_cannot_be_reached(sockets):
    worker = sockets.worker()
    worker.send(HELLO)
    ((key, _),) = arrivals(sockets.coordinator, 1)
    worker.close()
    deadline = time.monotonic() + WITHIN_S
    while sockets.coordinator.send(key, Stop()):
        assert time.monotonic() < deadline, "sending still seems to work"
        sockets.coordinator.wait(0.01)


def test_a_worker_says_when_it_cannot_read_the_coordinator(tmp_path):
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(f"ipc://{tmp_path}/other")
        worker = Dealer(f"ipc://{tmp_path}/other")
        worker.send(HELLO)
        key, _ = router.recv_multipart()
        router.send_multipart([key, b"rubbish"])
        with pytest.raises(ProtocolError, match="sent an invalid message"):
            answers(worker, 1)
        worker.close()


def test_a_restarted_worker_is_another_one(sockets):
    keys = set()
    for _ in range(2):
        worker = sockets.worker()
        worker.send(HELLO)
        keys |= {key for key, _ in arrivals(sockets.coordinator, 1)}
        worker.close()
    assert len(keys) == 2
