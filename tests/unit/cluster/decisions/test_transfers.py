"""The steps of servers in a merge, executed on arrays in arbitrary orders."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.cluster.decisions.transfers import SCHEDULES, staging_size, steps_of
from tests.support.property_tests import max_examples


class Server:
    """One server that executes its steps; `others` are all servers by rank."""

    def __init__(self, schedule, rank, change, others):
        size = len(change)
        self.steps = steps_of(schedule, rank, size)
        self.rank, self.change, self.others = rank, change, others
        self.sum = np.full(size, np.nan, np.float32)
        self.staging = np.full(staging_size(schedule, size), np.nan, np.float32)
        self.arrived = {}  # what was sent, by sender and step
        self.step, self.sent = 0, False

    def advance(self):
        """Send or receive if possible; False if the server has to wait or has finished."""
        if self.step == len(self.steps):
            return False
        send, receive = self.steps[self.step]
        if send and not self.sent:
            self._send(send)
            self.sent = True
            return True
        if receive and (receive.rank, self.step) not in self.arrived:
            return False
        if receive:
            here = slice(receive.start, receive.stop)
            sent = self.arrived[receive.rank, self.step]
            assert (sent.start, sent.stop, sent.staging) == receive[1:4]
            if receive.staging is not None:
                parts = self.staging[receive.staging :][: receive.stop - receive.start]
                self.sum[here] += parts
                parts[:] = np.nan  # nobody may rely on them
            elif receive.add_change:
                self.sum[here] += self.change[here]
        self.step, self.sent = self.step + 1, False
        return True

    def _send(self, send):
        source = (self.change if send.fresh else self.sum)[send.start : send.stop]
        other = self.others[send.rank]
        if send.staging is None:
            assert not np.isnan(source).any()  # what is sent is complete
            target = other.sum[send.start : send.stop]
            first = other.steps[self.step].receive.add_change
            assert not first or np.isnan(target).all()  # the receiver has not used it before
        else:
            target = other.staging[send.staging : send.staging + len(source)]
            assert np.isnan(target).all()  # never overwritten before it was added
        target[:] = source
        other.arrived[self.rank, self.step] = send


def run(schedule, changes, choose):
    """Execute a schedule; `choose` picks the server that acts next among all that can."""
    servers = []
    for rank, change in enumerate(changes):
        servers.append(Server(schedule, rank, change, servers))
    waiting = list(servers)
    while waiting:
        server = choose(waiting)
        if server.advance():
            waiting = list(servers)
        else:
            waiting.remove(server)
    assert all(server.step == len(server.steps) for server in servers)
    return [server.sum for server in servers]


@pytest.mark.parametrize("name", SCHEDULES)
@max_examples(100)
@given(count=st.integers(2, 9), size=st.integers(0, 70), seed=st.integers(0, 999), data=st.data())
def test_all_servers_end_with_the_same_bits_whatever_the_order(name, count, size, seed, data):
    random = np.random.default_rng(seed)
    changes = random.standard_normal((count, size)).astype(np.float32)
    order = data.draw(st.randoms(use_true_random=False))
    favoured = data.draw(st.integers(0, count))  # a server that is far ahead of all others

    def choose(waiting):
        ahead = [server for server in waiting if server.rank == favoured]
        return ahead[0] if ahead else order.choice(waiting)

    sums = run(SCHEDULES[name](count), changes, choose)
    for each in sums:
        assert each.tobytes() == sums[0].tobytes()
    np.testing.assert_allclose(sums[0], changes.sum(0), rtol=1e-5, atol=1e-5)
