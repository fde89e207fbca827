"""The steps of servers in a ring, executed on arrays in arbitrary orders."""

import numpy as np
from hypothesis import given, strategies as st

from hogbatch.cluster.decisions.ring import ring_steps
from tests.support.property_tests import max_examples


class Server:
    """One server that executes its steps; what it may not use yet is NaN."""

    def __init__(self, rank, change, servers):
        self.steps = list(ring_steps(rank, servers, len(change)))
        self.change, self.sum = change, np.full_like(change, np.nan)
        self.sum[self.steps[0].sent] = change[self.steps[0].sent]
        self.next = None
        self.arrived = self.step = 0
        self.sent = False

    def advance(self):
        """Send or receive if possible; False if the server has to wait or has finished."""
        if self.step == len(self.steps):
            return False
        sent, received, adds = self.steps[self.step]
        if not self.sent:
            self._send(sent)
            self.sent = True
            return True
        if self.arrived <= self.step:
            return False
        if adds:
            self.sum[received] += self.change[received]
        self.step, self.sent = self.step + 1, False
        return True

    def _send(self, part):
        following = self.next.steps[self.step]
        assert following.received == part
        assert not np.isnan(self.sum[part]).any()  # what is sent is complete
        if following.adds:
            assert np.isnan(self.next.sum[part]).all()  # the receiver has not used it before
        self.next.sum[part] = self.sum[part]
        self.next.arrived += 1


@max_examples(100)
@given(count=st.integers(2, 9), size=st.integers(0, 70), seed=st.integers(0, 999), data=st.data())
def test_all_servers_end_with_the_same_bits_whatever_the_order(count, size, seed, data):
    changes = np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)
    servers = [Server(rank, change, count) for rank, change in enumerate(changes)]
    for rank, server in enumerate(servers):
        server.next = servers[(rank + 1) % count]
    order = data.draw(st.randoms(use_true_random=False))
    favoured = data.draw(st.integers(0, count))  # a server that is far ahead of all others
    waiting = list(servers)
    while waiting:
        ahead = [server for server in waiting if servers.index(server) == favoured]
        server = ahead[0] if ahead else order.choice(waiting)
        waiting = list(servers) if server.advance() else [e for e in waiting if e is not server]
    assert all(server.step == 2 * (count - 1) for server in servers)
    assert len({server.sum.tobytes() for server in servers}) == 1
    np.testing.assert_allclose(servers[0].sum, changes.sum(0), rtol=1e-5, atol=1e-5)
