import os
import threading
from contextlib import closing

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.coordinator.adapters import RunAdapters
from hogbatch.coordinator.commands import Finish, Shuffle
from hogbatch.coordinator.loop import coordinator_loop
from hogbatch.run.launch.local import LocalLauncher
from tests.support.loopback import Loopback


class ScriptedState:
    """A coordinator's state that answers every event from a script."""

    workers = ()

    def __init__(self, commands):
        self._commands = commands

    def begin(self, now):
        return self._commands

    def totals(self, now):
        return "totals"

    def tick(self, now):
        return []


class FakeSegmentServer:
    """A segment_server without connections."""

    def __init__(self):
        self._fd = os.eventfd(0)

    def fileno(self):
        return self._fd

    def close(self):
        os.close(self._fd)


class FiniteSnapshots:
    """Snapshots of a model that is always finite."""

    def copy(self, draft):
        assert draft is None
        return None


@pytest.fixture
def segment_server():
    with closing(FakeSegmentServer()) as made:
        yield made


def adapters(segment_server, shuffle, children, record=None):
    return RunAdapters(
        endpoint=Loopback(),
        segment_server=segment_server,
        revoke=lambda number: None,
        processes=children,
        snapshots=FiniteSnapshots(),
        shuffle=shuffle,
        quarantine=None,
        record=record,
        report=None,
        show_mean=None,
        keep=None,
    )


def test_a_run_that_ends_while_an_order_is_written_waits_for_it(segment_server):
    written, ending = [], threading.Timer(0.05, lambda: None)

    def shuffle(epoch, without):
        ending.join(WITHIN_S)
        written.append(epoch)

    ending.start()
    loop = coordinator_loop(
        ScriptedState([Shuffle(0), Finish("finished")]),
        adapters(segment_server, shuffle, LocalLauncher()),
    )
    assert loop.run() == (Finish("finished"), "totals")
    assert written == [0]
