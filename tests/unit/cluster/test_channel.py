"""The servers of a run as workers of its coordinator; the servers are faked."""

import select

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.channel import ServersChannel
from hogbatch.coordinator.adapters import NotRestarted, Restarted
from hogbatch.errors import HogbatchError
from hogbatch.wire.codec import decode_to_worker
from hogbatch.wire.messages import Collect, Done, Failed, Heartbeat, Loaded, Servers
from tests.support.wire_messages import WELCOME

DONE = Done(1, 10, 1, 0.1, 1.0, 0, ())


class FakeRouter:
    """The connections with all servers."""

    refused = 0

    def __init__(self):
        self.arrived, self.sent, self.watched = [], [], set()

    def watch(self, fd):
        self.watched.add(fd)

    def unwatch(self, fd):
        self.watched.remove(fd)

    def wait(self, timeout_s):
        return [fd for fd in self.watched if select.select([fd], [], [], timeout_s)[0]]

    def receive(self):
        while self.arrived:
            yield self.arrived.pop(0)

    def send(self, key, message):
        self.sent.append((key, message))
        return True


class FakeServer:
    def __init__(self, place, key):
        self.place, self.key, self.name = place, key, f"machine of {key}"
        self.introduced, self.alive = [], True

    def introduce(self, number, version, peers, message):
        self.introduced.append((number, version, sorted(peers), decode_to_worker(message)))

    def read_model(self):
        if not self.alive:
            raise OSError("gone")
        return {"params": np.array([float(self.place)])}

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
        self.started.append(FakeServer(place, key))
        return self.started[-1]


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def router():
    return FakeRouter()


@pytest.fixture
def channel(cluster, router):
    made = ServersChannel(cluster, router, lambda place, key: b"start")
    made.begin()
    yield made
    made.close()
    assert not router.watched


@pytest.fixture
def tell(channel, router):
    """Let a server send a message, and return what the channel has received."""

    def send(server, message):
        router.arrived.append((server.key, message))
        return list(channel.receive())

    return send


def welcome(channel, server, number):
    import msgspec

    channel.send(server.key, msgspec.structs.replace(WELCOME, worker=number))


def test_messages_reach_their_server_and_the_coordinator(channel, cluster, router, tell):
    one, two = cluster.started
    assert channel.send(two.key, Collect(1)) and router.sent == [(two.key, Collect(1))]
    assert not channel.send("unknown", Collect(1))
    assert tell(one, Heartbeat()) == [(one.key, Heartbeat())]
    router.arrived.append(("unknown", Heartbeat()))
    assert list(channel.receive()) == [], "only servers of this run are heard"


def test_the_end_of_a_server_wakes_the_loop(channel, cluster):
    one, _ = cluster.started
    assert channel.wait(0.0) == []
    channel.failed(one.key, "it died")
    assert channel.wait(WITHIN_S) != []
    assert list(channel.receive()) == [(one.key, Failed("it died"))]
    assert channel.wait(0.0) == [] and not one.alive


def test_servers_are_introduced_before_they_are_told_about_the_others(channel, cluster, router):
    one, two = cluster.started
    welcome(channel, one, 5)
    welcome(channel, two, 7)
    router.sent.clear()
    message = Servers(3, (5, 7), (b"a", b"b"))
    channel.send(one.key, message)
    assert one.introduced == [(5, 3, [7], message)] and not router.sent


def test_the_model_is_read_from_a_server_that_has_it(channel, cluster, tell):
    one, two = cluster.started
    assert channel.read_model() is None
    tell(one, Loaded()), tell(two, Loaded())
    assert channel.read_model()["params"] == [0.0]
    one.alive = False
    assert channel.read_model()["params"] == [1.0], "the first one cannot be reached"


def test_a_server_that_has_trained_is_started_again_at_once(channel, cluster, tell):
    one, _ = cluster.started
    tell(one, DONE)
    assert tell(one, Failed("it died")) == [(one.key, Failed("it died"))]
    assert list(channel.start_due(1.0)) == []
    assert list(channel.start_due(1.0)) == [Restarted("server 0", 0, 1, 3)]
    assert len(cluster.started) == 3 and cluster.started[2].key != one.key
    assert tell(one, Heartbeat()) == [], "the dead one is not heard any more"


def test_a_revoked_server_is_killed(channel, cluster):
    one, two = cluster.started
    welcome(channel, one, 5)
    channel.revoke(5)
    assert not one.alive and two.alive
    assert not channel.send(one.key, Collect(1))


def test_servers_that_cannot_be_started_are_given_up(channel, cluster, tell):
    cluster.broken = True
    for server in list(cluster.started):
        tell(server, Failed("it died"))
    outcomes = []
    for now in range(0, 200, 2):
        outcomes += channel.start_due(float(now))
        list(channel.receive())
        if channel.all_ended():
            break
    given_up = [each.runs_on for each in outcomes if isinstance(each, NotRestarted)]
    assert sorted(given_up) == ["server 0", "server 1"]
    assert channel.all_ended() == "no server can be started any more"


def test_a_server_that_was_an_outlier_twice_is_given_up(channel, cluster, tell):
    def outlier(server, number):
        tell(server, DONE)
        welcome(channel, server, number)
        channel.limit_restarts(server.key, f"its change was {number} times as large as usual")
        channel.revoke(number)
        return [each for now in (1.0, 2.0) for each in channel.start_due(now)]

    one, two = cluster.started
    assert outlier(one, 500) == [Restarted("server 0", 0, 1, 3)]
    assert outlier(two, 600) == [Restarted("server 1", 0, 1, 3)], "each place has its own limit"
    (given_up,) = outlier(cluster.started[2], 700)
    assert given_up.runs_on == "server 0"
    assert given_up.reason.startswith("its change was 700 times as large as usual, as before")
    assert list(channel.start_due(1000.0)) == [] and len(cluster.started) == 4
    assert channel.all_ended() is None, "the other server trains"
    outlier(cluster.started[3], 800)
    assert channel.all_ended() == "no server can be started any more"


def test_an_outlier_that_has_ended_meanwhile_is_started_again(channel, cluster, tell):
    one, _ = cluster.started
    tell(one, Failed("it died"))
    for _ in range(5):
        channel.limit_restarts(one.key, "its change was 500 times as large as usual")
    assert list(channel.start_due(0.0)) == []
    assert list(channel.start_due(1000.0)) == [Restarted("server 0", 0, 1, 3)]


def test_the_files_of_all_servers_are_collected(channel, cluster):
    one, two = cluster.started
    assert list(channel.stop()) == [
        (one.key, "server-0", {"server.log": one.key.encode()}),
        (two.key, "server-1", {"server.log": two.key.encode()}),
    ]
