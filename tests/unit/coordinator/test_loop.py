import threading
from unittest.mock import Mock

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.server import Upstream
from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.background import BackgroundTasks
from hogbatch.coordinator.commands import Command, Finish, Revoke, Shuffle
from hogbatch.coordinator.loop import Loop
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.launch.local import LocalLauncher
from tests.support.loopback import Loopback
from tests.support.mock_components import mock_components


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


def loop_of(state, children, shuffle=None, record=None):
    """A loop without workers and without a model."""
    adapters = Adapters(
        endpoint=Loopback(),
        attached_by=lambda pid: False,
        processes=children,
        shuffle=shuffle,
        record=record,
        write_due=lambda: None,
    )
    return Loop(state, adapters, BackgroundTasks(), actions={Revoke: lambda command: None})


def test_a_run_that_ends_while_an_order_is_written_waits_for_it():
    written, ending = [], threading.Timer(0.05, lambda: None)

    def shuffle(epoch, without):
        ending.join(WITHIN_S)
        written.append(epoch)

    ending.start()
    state = ScriptedState([Shuffle(0), Finish("finished")])
    loop = loop_of(state, LocalLauncher(), shuffle)
    assert loop.run() == (Finish("finished"), "totals")
    assert written == [0]


def test_every_command_has_an_action(monkeypatch):
    monkeypatch.setattr(Loop, "run", lambda loop: loop._actions)
    actions = mock_components().run_loop(Mock(), Mock(), Callbacks())
    upstream = Upstream(Mock(), Mock(), Mock(), Mock(), Mock(), None)
    assert {*actions, *upstream.actions} == set(Command.__subclasses__())
