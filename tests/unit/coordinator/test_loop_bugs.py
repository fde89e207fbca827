"""An exception in the state or an adapter, on any thread, ends the run."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest

from hogbatch.coordinator.commands import (
    Finish,
    Keep,
    Kill,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    ShowKept,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.events.event import WorkerCompiles
from hogbatch.run.callbacks import Callbacks
from hogbatch.wire.messages import Hello
from tests.support.loopback import Loopback
from tests.support.mock_components import mock_components

SAVED = object()
AT_ONCE = ["begin", "tick", "receive", "attached_by", "pids", "start_due", "write_due"]
BY_COMMAND = {
    "shuffle": Shuffle(0),
    "order_ready": Shuffle(0),
    "copy": Snapshot(None),
    "snapshot_taken": Snapshot(None),
    "draft": Snapshot(SAVED),
    "write": Snapshot(SAVED),
    "checkpoint_written": Snapshot(SAVED),
    "roll_back": RollBack(),
    "quarantine": Quarantine(0, 0, 1),
    "revoke": Revoke(0),
    "record": Record(WorkerCompiles("cpu-0")),
    "totals": Report(None),
    "show": ShowMean(True),
    "show_kept": ShowKept(True),
    "keep": Keep(None),
}
BY_DEATH = ["cause_of_death", "lose", "died"]
BY_LONELINESS = ["all_ended", "abandon"]


@pytest.fixture
def dead():
    """The pid of a process that has exited and was not waited for."""
    with subprocess.Popen([sys.executable, "-SEc", ""]) as process:
        yield process.pid


@pytest.fixture
def everything():
    """State and adapters in one mock that does nothing."""
    made = MagicMock(workers={}, roster=Mock(departed=[]))
    made.configure_mock(
        **{
            f"{name}.return_value": []
            for name in (
                *("begin", "tick", "receive", "interrupt", "lose", "order_ready"),
                *("snapshot_taken", "checkpoint_written", "pids", "start_due"),
            )
        }
    )
    made.all_ended.return_value = made.died.return_value = None
    made.attached_by.return_value = False
    made.copy.return_value = made.write.return_value = None
    made.until_tick.return_value = 0.05
    made.draft.return_value = made
    made.abandon.return_value = [Finish("failed")]
    return made


def run(everything, pid=1):
    end, each = Loopback(), everything
    end.connect("w").send(Hello("cpu", "cpu:1", 1, pid, "", ""))
    each.fences = each.log = each
    components = mock_components(lambda name: each)
    components.run_loop(end, each, Callbacks(), each.attached_by, pull=each.pull)


@pytest.mark.parametrize("bug", [*AT_ONCE, *BY_COMMAND, *BY_DEATH, *BY_LONELINESS, "interrupt"])
def test_a_bug_ends_the_run(everything, dead, bug):
    if bug in BY_COMMAND:
        everything.begin.return_value = [BY_COMMAND[bug]]
    if bug in BY_DEATH:
        everything.pids.return_value = [dead]
        everything.workers = {"w": SimpleNamespace(key="w", pid=dead)}
    if bug == "abandon":
        everything.all_ended.return_value = "all are gone"
    if bug == "interrupt":
        everything.begin.side_effect = lambda now: signal.raise_signal(signal.SIGINT) or []
    getattr(everything, bug).side_effect = ZeroDivisionError(bug)
    with pytest.raises(ZeroDivisionError, match=bug):
        run(everything)


def test_a_model_that_is_not_finite_is_not_written(everything):
    everything.begin.return_value = [Snapshot(SAVED)]
    everything.copy.return_value = "layers.0.bias[1]"
    everything.snapshot_taken.return_value = [Finish("failed")]
    run(everything)
    assert not everything.write.called


def test_a_model_that_no_server_gives_is_reported_and_not_written(everything):
    everything.begin.return_value = [Snapshot(SAVED)]
    everything.pull.side_effect = ConnectionError("no server can be reached")
    everything.snapshot_failed.return_value = [Finish("failed")]
    run(everything)
    assert everything.snapshot_failed.called and not everything.write.called


def test_a_worker_that_claims_to_be_the_coordinator_gets_nobody_killed(everything, monkeypatch):
    killed = Mock()
    monkeypatch.setattr(signal, "pidfd_send_signal", killed)
    everything.attached_by.return_value = True
    everything.receive.return_value = [Kill(os.getpid()), Finish("failed")]
    run(everything, os.getpid())
    assert everything.attached_by.called and not killed.called


def test_the_exit_of_a_child_that_attaches_is_handled_once(everything, dead):
    everything.pids.return_value = [dead]
    everything.attached_by.return_value = True
    more = iter(range(3))  # turns after the exit

    def all_ended():
        return "all" if everything.died.called and next(more, None) is None else None

    everything.all_ended.side_effect = all_ended
    run(everything, dead)
    assert everything.died.call_count == 1
