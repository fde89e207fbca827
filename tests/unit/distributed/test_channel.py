"""The servers of a run as workers of its coordinator; the servers are faked."""

import numpy as np
import pytest

from hogbatch.coordinator.adapters import NotRestarted, Restarted
from hogbatch.distributed.channel import ServersChannel
from hogbatch.errors import HogbatchError
from hogbatch.wire.codec import decode_to_worker, encode
from hogbatch.wire.messages import Collect, Done, Failed, Heartbeat, Loaded, Servers
from tests.support.wire_messages import WELCOME

DONE = Done(1, 10, 1, 0.1, 1.0, 0, ())


class FakeServer:
    def __init__(self, key):
        self.key, self.name = key, f"machine of {key}"
        self.delivered, self.introduced, self.alive = [], [], True

    def deliver(self, frame):
        self.delivered.append(decode_to_worker(frame))

    def introduce(self, number, version, peers):
        self.introduced.append((number, version, sorted(peers)))

    def read_model(self):
        if not self.alive:
            raise OSError("gone")
        return {"params": np.array([float(self.key[0])])}

    def stop(self):
        return {"server.log": self.key.encode()}

    def kill(self):
        self.alive = False


class FakeCluster:
    size = 2

    def __init__(self):
        self.started, self.broken = [], False

    def start(self, place, key, start):
        if self.broken:
            raise HogbatchError("no machine")
        self.started.append(FakeServer(key))
        return self.started[-1]


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def channel(cluster):
    made = ServersChannel(cluster, lambda place: b"start")
    made.begin()
    yield made
    made.close()


def tell(channel, server, message):
    channel.received(server.key, encode(message))
    return list(channel.receive())


def welcome(channel, server, number):
    import msgspec

    channel.send(server.key, msgspec.structs.replace(WELCOME, worker=number))


def test_messages_reach_their_server_and_the_coordinator(channel, cluster):
    one, two = cluster.started
    assert channel.send(two.key, Collect(1)) and two.delivered == [Collect(1)]
    assert not one.delivered and not channel.send("unknown", Collect(1))
    assert tell(channel, one, Heartbeat()) == [(one.key, Heartbeat())]
    channel.received(one.key, b"garbage")
    assert list(channel.receive()) == [] and channel.refused == 1


def test_a_message_wakes_the_loop(channel, cluster):
    assert channel.wait(0.0) == []
    channel.received(cluster.started[0].key, encode(Heartbeat()))
    assert channel.wait(10.0) != [] or list(channel.receive())


def test_servers_are_introduced_with_their_numbers(channel, cluster):
    one, two = cluster.started
    welcome(channel, one, 5)
    welcome(channel, two, 7)
    channel.send(one.key, Servers(3, (5, 7), (b"a", b"b")))
    assert one.introduced == [(5, 3, [7])]


def test_the_model_is_read_from_a_server_that_has_it(channel, cluster):
    one, two = cluster.started
    assert channel.read_model() is None
    tell(channel, one, Loaded()), tell(channel, two, Loaded())
    assert channel.read_model()["params"] == [0.0]
    one.alive = False
    assert channel.read_model()["params"] == [1.0], "the first one cannot be reached"


def test_a_server_that_has_trained_is_started_again_at_once(channel, cluster):
    one, _ = cluster.started
    tell(channel, one, DONE)
    assert tell(channel, one, Failed("it died")) == [(one.key, Failed("it died"))]
    assert list(channel.start_due(1.0)) == []
    assert list(channel.start_due(1.0)) == [Restarted("server 0", 0, 1, 3)]
    assert len(cluster.started) == 3 and cluster.started[2].key != one.key
    assert tell(channel, one, Heartbeat()) == [], "the dead one is not heard any more"


def test_a_revoked_server_is_killed(channel, cluster):
    one, two = cluster.started
    welcome(channel, one, 5)
    channel.revoke(5)
    assert not one.alive and two.alive
    assert not channel.send(one.key, Collect(1))


def test_servers_that_cannot_be_started_are_given_up(channel, cluster):
    cluster.broken = True
    for server in list(cluster.started):
        tell(channel, server, Failed("it died"))
    outcomes = []
    for now in range(0, 200, 2):
        outcomes += channel.start_due(float(now))
        list(channel.receive())
        if channel.all_ended():
            break
    given_up = [each.runs_on for each in outcomes if isinstance(each, NotRestarted)]
    assert sorted(given_up) == ["server 0", "server 1"]
    assert channel.all_ended() == "no server can be started any more"


def test_the_files_of_all_servers_are_collected(channel, cluster):
    one, two = cluster.started
    files = channel.stop()
    assert files == {
        "server-0": {"server.log": one.key.encode()},
        "server-1": {"server.log": two.key.encode()},
    }
