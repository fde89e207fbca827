import threading
from unittest.mock import Mock

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.server import Upstream
from hogbatch.coordinator.adapters import RunAdapters
from hogbatch.coordinator.commands import Command, Finish, Shuffle
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


class FiniteSnapshots:
    """Snapshots of a model that is always finite."""

    def copy(self, draft):
        assert draft is None
        return None


def adapters(shuffle, children, record=None):
    return RunAdapters(
        endpoint=Loopback(),
        attached_by=lambda pid: False,
        revoke=lambda number: None,
        processes=children,
        snapshots=FiniteSnapshots(),
        shuffle=shuffle,
        quarantine=None,
        record=record,
        write_due=lambda: None,
        report=None,
        show_mean=None,
        show_kept=None,
        keep=None,
        measure=lambda name, metric: {},
    )


def test_a_run_that_ends_while_an_order_is_written_waits_for_it():
    written, ending = [], threading.Timer(0.05, lambda: None)

    def shuffle(epoch, without):
        ending.join(WITHIN_S)
        written.append(epoch)

    ending.start()
    loop = coordinator_loop(
        ScriptedState([Shuffle(0), Finish("finished")]),
        adapters(shuffle, LocalLauncher()),
    )
    assert loop.run() == (Finish("finished"), "totals")
    assert written == [0]


def test_every_command_has_an_action():
    loop = coordinator_loop(Mock(), Mock())
    upstream = Upstream(Mock(), Mock(), Mock(), Mock(), Mock(), None)
    assert {*loop._actions, *upstream.actions} == set(Command.__subclasses__())
