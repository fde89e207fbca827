"""The plane through another process, here a relay that holds the buffers of all servers."""

import threading
from collections import deque

import numpy as np
import pytest

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.areas import ALL
from hogbatch.cluster.exchange import ChangeExchange
from hogbatch.cluster.planes.relayed import RelayedPlane


class FakeRelay:
    """Writes at once; `all_` has the relays of all servers by number."""

    def __init__(self, number, buffers, all_):
        self.number, self.buffers, self.all = number, buffers, all_
        self.arrived = deque()
        all_[number] = self

    def write(self, to, array, target, note):
        self.all[to].buffers.memory[target : target + len(array)] = array
        self.all[to].arrived.append((self.number, note))

    def notes(self):
        while self.arrived:
            yield self.arrived.popleft()


@pytest.fixture
def relays():
    found = {}
    for number in (3, 5):
        FakeRelay(number, ExchangeBuffers.create(500, servers=2), found)
    yield found
    for each in found.values():
        each.buffers.close()


@pytest.mark.parametrize("how", ALL)
def test_two_servers_merge_through_relays(relays, how):
    exchanges = {}
    for number, relay in relays.items():
        relay.buffers.change[:] = np.arange(500) * number
        plane = RelayedPlane(relay.buffers, relay)
        plane.connect({other: b"" for other in relays if other != number})
        exchanges[number] = ChangeExchange(relay.buffers, plane, number)

    def merge(number):
        exchanges[number].reduce(1, 0, [3, 5], 1.0, how, threading.Event())

    thread = threading.Thread(target=merge, args=(3,))
    thread.start()
    merge(5)
    thread.join()
    sums = [relay.buffers.sum for relay in relays.values()]
    assert sums[0].tobytes() == sums[1].tobytes()
    assert sums[0][-1] == pytest.approx(499 * 8, rel=0.01)


def test_notes_of_others_are_dropped(relays):
    plane = RelayedPlane(relays[3].buffers, relays[3])
    plane.connect({5: b""})
    relays[3].arrived += [(4, b"no"), (5, b"yes")]
    assert list(plane.notes()) == [(5, b"yes")]
    plane.close()
    relays[3].arrived.append((5, b"late"))
    assert list(plane.notes()) == []
