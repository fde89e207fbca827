"""Figures of a server's workers, and their records by the coordinator of all servers."""

import pytest

from hogbatch.cluster.server_figures import figures_of
from hogbatch.events.event import WorkersOfServer
from hogbatch.wire.messages import MAX_LISTED, Heartbeat, ServerWorkers
from tests.support.coordinator_stage import Stage, records
from tests.support.servers_stage import ServersStage
from tests.support.wire_messages import SERVER_WORKER

FIGURES = ServerWorkers((SERVER_WORKER,), others=2)


@pytest.fixture
def servers():
    """Two servers that train."""
    stage = ServersStage(train_rows=50_000, start_with=2, merge_rows=400)
    stage.join("a"), stage.join("b")
    stage.run(lambda stage: stage.now > 1.0)
    return stage


def told(stage, key, message=FIGURES):
    """What follows from the message of server `key`."""
    return stage.state.receive(key, message, stage.now)


def test_the_states_of_workers():
    stage = Stage(start_with=1)
    stage.hello("new"), stage.attach("a", "b", "gone")
    stage.receive("new", Heartbeat(compiling=True))
    stage.goodbye("gone")
    stage.state.roster.park(stage.state.workers["b"], 0.0)
    figures = figures_of(stage.state.roster, 0.0)
    states = [(each.name, each.state) for each in figures.workers]
    assert states[:2] == [("cpu-0", "compiles"), ("cpu-1", "trains")]
    assert states[2:] == [("cpu-2", "parked"), ("cpu-3", "left")], "which comes last"
    stage.hello("newer")
    assert figures_of(stage.state.roster, 0.0).workers[3].state == "starts"


def test_of_many_workers_the_first_ones_are_listed():
    stage = Stage()
    stage.attach(*(f"w{n}" for n in range(MAX_LISTED + 4)))
    stage.goodbye("w0")
    figures = figures_of(stage.state.roster, 0.0)
    assert [each.name for each in figures.workers] == [f"cpu-{n}" for n in range(1, 17)]
    assert figures.others == 4


def test_the_workers_of_a_server_are_recorded_with_its_name(servers):
    (event,) = records(told(servers, "b"), WorkersOfServer)
    assert event.worker == "server-1" and event.others == 2
    (worker,) = event.workers
    assert (worker.name, worker.device, worker.threads) == ("cpu-0", "cpu", 8)
    assert (worker.state, worker.batch_size, worker.busy) == ("trains", 64, 0.97)
    assert (worker.rows, worker.updates) == (100_000, 1600)
