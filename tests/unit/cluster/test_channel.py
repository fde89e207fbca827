"""The servers of a run as workers of its coordinator; the servers are faked."""

import select

import msgspec
import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.channel import ServersChannel
from hogbatch.errors import HogbatchError
from hogbatch.events.event import WorkerGivenUp, WorkerRestarted
from hogbatch.kernels.contract import NO_SCORES
from hogbatch.wire.codec import decode_to_worker
from hogbatch.wire.messages import Collect, Done, Failed, Heartbeat, Lease, Loaded, Servers
from tests.support.wire_messages import WELCOME

DONE = Done(1, 10, 1, 0.1, 1.0, 0, ())


class FakeRouter:
    """The connections with all servers."""

    refused = 0

    def __init__(self):
        self.arrived, self.sent, self.watched = [], [], set()
        self.watch, self.unwatch = self.watched.add, self.watched.remove

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

    def read_scores(self, start, stop):
        if not self.alive:
            raise OSError("gone")
        return np.arange(start, stop, dtype=np.float32)[:, np.newaxis]

    def stop(self):
        return {"server.log": self.key.encode()}

    def kill(self):
        self.alive = False


class FakeCluster:
    """Two servers; `tell` lets one send a message, and returns what the channel has received."""

    size, lost = 2, None

    def __init__(self):
        self.started, self.broken, self.router = [], False, FakeRouter()
        self.scores = np.full((4, 1), -1, np.float32)
        stored = NO_SCORES._replace(scores=self.scores)
        self.channel = ServersChannel(self, self.router, lambda place, key: b"start", stored)
        self.channel.begin()

    def start(self, place, key, start):
        if self.broken:
            raise HogbatchError("no machine")
        self.started.append(FakeServer(place, key))
        return self.started[-1]

    def tell(self, server, message):
        self.router.arrived.append((server.key, message))
        return list(self.channel.receive())

    def welcome(self, server, number):
        welcome = msgspec.structs.replace(WELCOME, worker=number, name=f"server-{number}")
        self.channel.send(server.key, welcome)


@pytest.fixture
def cluster():
    made = FakeCluster()
    yield made
    made.channel.close()
    assert not made.router.watched


@pytest.fixture
def channel(cluster):
    return cluster.channel


def test_messages_reach_their_server_and_the_coordinator(channel, cluster):
    one, two = cluster.started
    assert channel.send(two.key, Collect(1)) and cluster.router.sent == [(two.key, Collect(1))]
    assert not channel.send("unknown", Collect(1))
    assert cluster.tell(one, Heartbeat()) == [(one.key, Heartbeat())]
    assert cluster.tell(FakeServer(0, "unknown"), Heartbeat()) == [], "only servers of this run"


def test_the_end_of_a_server_wakes_the_loop(channel, cluster):
    one, _ = cluster.started
    assert channel.wait(0.0) == []
    channel.failed(one.key, "it died")
    assert channel.wait(WITHIN_S) != []
    assert list(channel.receive()) == [(one.key, Failed("it died"))]
    assert channel.wait(0.0) == [] and not one.alive


def test_servers_are_introduced_before_they_are_told_about_the_others(channel, cluster):
    one, two = cluster.started
    cluster.welcome(one, 5)
    cluster.welcome(two, 7)
    cluster.router.sent.clear()
    message = Servers(3, (5, 7), (b"a", b"b"))
    channel.send(one.key, message)
    assert one.introduced == [(5, 3, [7], message)] and not cluster.router.sent


def test_the_model_is_read_from_a_server_that_has_it(channel, cluster):
    one, two = cluster.started
    assert channel.read_model() is None
    cluster.tell(one, Loaded()), cluster.tell(two, Loaded())
    assert channel.read_model()["params"] == [0.0]
    one.alive = False
    assert channel.read_model()["params"] == [1.0], "the first one cannot be reached"


def test_rows_are_evaluated_once_their_scores_were_read(channel, cluster):
    one, two = cluster.started
    for number, server in enumerate((one, two)):
        channel.send(server.key, Lease(number, "test", 0, 2 * number, 2 * number + 2, 1, 0.0, 0))
    two.alive = False
    done = [msgspec.structs.replace(DONE, lease=number) for number in range(2)]
    received = cluster.tell(one, done[0]) + cluster.tell(two, done[1])
    while len(received) < 2:
        assert channel.wait(WITHIN_S) != []
        received += channel.receive()
    lost = Failed("its scores could not be read: gone")
    assert received == [(one.key, done[0]), (two.key, lost)]
    assert cluster.scores.tolist() == [[0.0], [1.0], [-1.0], [-1.0]]


def test_a_server_that_has_trained_is_started_again_at_once(channel, cluster):
    one, _ = cluster.started
    cluster.tell(one, DONE)
    assert cluster.tell(one, Failed("it died")) == [(one.key, Failed("it died"))]
    assert list(channel.start_due(1.0)) == []
    assert list(channel.start_due(1.0)) == [WorkerRestarted("server 0", 0, 1, 30)]
    assert len(cluster.started) == 3 and cluster.started[2].key != one.key
    assert cluster.tell(one, Heartbeat()) == [], "the dead one is not heard any more"


def test_servers_that_cannot_be_started_are_given_up(channel, cluster):
    cluster.broken = True
    for server in list(cluster.started):
        cluster.tell(server, Failed("it died"))
    outcomes = []
    for now in range(0, 200, 2):
        outcomes += channel.start_due(float(now))
        list(channel.receive())
    given_up = [each.runs_on for each in outcomes if isinstance(each, WorkerGivenUp)]
    assert sorted(given_up) == ["server 0", "server 1"]
    assert channel.all_ended() == "no server can be started any more"


def test_files_and_restarts_have_the_names_of_the_workers(channel, cluster):
    one, two = cluster.started
    cluster.welcome(two, 0)
    assert list(channel.stop()) == [(two.key, "server-0", {"server.log": two.key.encode()})]
    cluster.welcome(one, 1)
    assert [name for _, name, _ in channel.stop()] == ["server-1", "server-0"]
    cluster.tell(one, DONE), cluster.tell(one, Failed("it died"))
    list(channel.start_due(1.0))
    assert list(channel.start_due(1.0)) == [WorkerRestarted("server-1", 0, 1, 30)]
    assert [name for _, name, _ in channel.stop()] == ["server-0"], "the new one has not joined"


def test_no_server_is_started_again_once_the_cluster_is_lost(channel, cluster):
    one, _ = cluster.started
    cluster.lost = "the cluster is lost"
    cluster.tell(one, DONE), cluster.tell(one, Failed("it died"))
    assert list(channel.start_due(1.0)) == [] == list(channel.start_due(2.0))
    assert channel.all_ended() == "the cluster is lost"
