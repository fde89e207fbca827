"""The action of each command."""

from typing import get_args
from unittest.mock import Mock, call

import pytest

from hogbatch.coordinator.commands import (
    Answer,
    Command,
    Finish,
    Keep,
    Kill,
    LimitRestarts,
    LoadServer,
    MergeStep,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    Send,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.execution import Executor

FINISH, STEP = Finish("finished"), MergeStep(None, 1, 2, 3)
ACTIONS = {
    Send("w", "message"): call.workforce.send("w", "message"),
    Revoke(3): call.workforce.revoke(3),
    Kill(9): call.workforce.kill(9),
    Shuffle(1, 2): call.workforce.shuffle(1, 2),
    Quarantine(1, 2, 3): call.workforce.quarantine(1, 2, 3),
    Record("event"): call.workforce.record("event"),
    FINISH: call.workforce.end(FINISH),
    Snapshot(None): call.model.snapshot(None),
    RollBack(): call.model.roll_back(),
    Report("evaluation"): call.model.report("evaluation"),
    ShowMean(True): call.model.show_mean(True),
    Keep(None): call.model.keep(None),
    LoadServer("a", "b"): call.servers.load_server("a", "b"),
    LimitRestarts("a", "why"): call.servers.limit_restarts("a", "why"),
    Answer("message"): call.upstream.answer("message"),
    STEP: call.upstream.exchange(STEP),
}


def test_every_command_has_an_action():
    assert {type(command) for command in ACTIONS} == set(get_args(Command))


@pytest.mark.parametrize("command", ACTIONS, ids=lambda command: type(command).__name__)
def test_the_action_of_a_command_is_called(command):
    run = Mock()
    Executor(run.workforce, run.model, run.servers, run.upstream).execute(command)
    assert run.mock_calls == [ACTIONS[command]]


@pytest.mark.parametrize("command", [RollBack(), LoadServer("a", "b"), Answer("message")])
def test_a_command_that_the_run_has_no_action_for_is_an_error(command):
    with pytest.raises(TypeError, match="this run has no action"):
        Executor(Mock()).execute(command)
