"""A rehearsed run carries out the commands of its coordinator with its components."""

from random import Random
from unittest.mock import Mock, call

import pytest

from hogbatch.coordinator.commands import Keep, Quarantine, Revoke, RollBack, ShowMean
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.rehearsal.rehearsal import RehearsedWorld
from tests.support.mock_components import mock_components

CALLS = {
    Revoke(3): call.segments.fences.revoke(3),
    Quarantine(1, 20, 30): call.segments.quarantine(1, 20, 30),
    RollBack(): call.snapshots.roll_back(),
    ShowMean(True): call.moving_mean.show(True),
    Keep(None): call.recorder.keep(None, None),
}


@pytest.mark.parametrize("command", CALLS, ids=lambda command: type(command).__name__)
def test_a_command_is_carried_out(command):
    parts = Mock()
    components = mock_components(lambda name: getattr(parts, name))
    world = RehearsedWorld(components, 1e9, Random(0), EventQueue())
    world.actions[type(command)](command)
    assert parts.mock_calls[0] == CALLS[command]
