"""The plane through another process, here a thread that writes to the buffers of all servers."""

import threading
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.msgpack import decode, encode

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.model_merges import ChangeExchange
from hogbatch.cluster.planes.base import PlaneError
from hogbatch.cluster.planes.relayed import Note, RelayedPlane, RelayedWrite, Written
from tests.support.merging_servers import reduction

NUMBERS = (3, 5)


@pytest.fixture
def servers():
    """Two servers by number: their buffers, their planes, and the other ends of these."""
    made, threads = {}, []

    def relay(number):
        own = made[number]
        while frame := own.relay.wait():
            with suppress(BrokenPipeError):  # the test has ended before the answer
                answer(number, own, frame)

    def answer(number, own, frame):
        asked = decode(frame, type=RelayedWrite)
        if asked.to not in made:
            own.relay.send(encode(Written("is not connected")))
            return
        array = own.buffers.memory[asked.start : asked.stop]
        to = made[asked.to]
        to.buffers.memory[asked.target : asked.target + len(array)] = array
        to.relay.send(encode(Note(number, asked.note)))
        own.relay.send(encode(Written()))

    for number in NUMBERS:
        relay_end, theirs = FrameSocket.pair()
        frames, buffers = FrameSocket(theirs.detach()), ExchangeBuffers.create(500)
        plane = RelayedPlane(frames, "a thread")
        plane.connect(dict.fromkeys(set(NUMBERS) - {number}, b""))
        made[number] = SimpleNamespace(buffers=buffers, plane=plane, relay=relay_end, frames=frames)
        threads.append(threading.Thread(target=relay, args=(number,)))
    for each in threads:
        each.start()
    yield made
    for each in made.values():
        each.frames.close()
    for each in threads:
        each.join(WITHIN_S)
    for each in made.values():
        each.relay.close()
        each.buffers.close()


def test_two_servers_merge_through_relays(servers):
    def merge(number):
        own = servers[number]
        own.buffers.change[:] = np.arange(500) * number
        exchange = ChangeExchange(own.buffers, own.plane, number)
        exchange.reduce(reduction(NUMBERS), threading.Event())

    thread = threading.Thread(target=merge, args=(3,))
    thread.start()
    merge(5)
    thread.join(WITHIN_S)
    for each in servers.values():
        assert (each.buffers.sum == np.arange(500) * 8.0).all()


def test_notes_that_arrive_before_an_answer_are_kept_and_those_of_others_dropped(servers):
    own, other = servers[3], servers[5]
    other.plane.start(3, (0, 0), 0, b"first")
    own.relay.send(encode(Note(4, b"no")))
    own.plane.start(5, (0, 0), 0, b"")
    other.plane.start(3, (0, 0), 0, b"second")
    assert list(own.plane.notes()) == [(5, b"first"), (5, b"second")]


def test_a_server_that_cannot_be_written_to_is_named(servers):
    own = servers[3]
    with pytest.raises(PlaneError, match="server 9 is not connected") as caught:
        own.plane.start(9, (0, 4), 0, b"")
    assert caught.value.server == 9
    own.frames._connection.shutdown(2)
    with pytest.raises(PlaneError, match="cannot be reached: EPIPE"):
        own.plane.start(5, (0, 4), 0, b"")
