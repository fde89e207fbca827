"""The loop with a simulated clock: time in which its process was stopped does not count."""

import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from hogbatch.coordinator import loop
from hogbatch.coordinator.commands import Finish
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.launch.local import LocalLauncher
from hogbatch.wire.messages import Done, Heartbeat, Hello, Lease, Ready, Welcome
from tests.support.coordinator_stage import FINGERPRINT, PACKAGE, make_plan
from tests.support.loopback import Loopback
from tests.support.mock_components import mock_components

TURN_S, MAX_TURNS, BEAT_TURNS = 0.01, 100_000, 100


class StoppedOnce(Loopback):
    """One worker at the other end, and a clock; nobody runs for `stopped_s` in its first lease.

    The worker says what it has done before the loop is woken, or `late_s` afterwards.
    """

    def __init__(self, stopped_s, late_s):
        super().__init__()
        self.now, self.turns = 1000.0, 0
        self._stopped_s, self._late_s, self._silent_until = stopped_s, late_s, None
        self._held = []  # leases to be done
        self._worker = self.connect("worker")
        self._worker.send(Hello("cpu", "cpu:1", 1, 1, PACKAGE, FINGERPRINT))

    def wait(self, timeout_s):
        self.turns += 1
        assert self.turns < MAX_TURNS, "the run does not end"
        self.now += TURN_S
        self._listen()
        if self._held and self._silent_until is None:
            self.now += self._stopped_s
            self._silent_until = self.now + self._late_s
        if self._held and self.now >= self._silent_until:
            self._do(self._held.pop(0))
        elif not self._held and self.turns % BEAT_TURNS == 0:
            self._worker.send(Heartbeat())
        return super().wait(0.0)

    def _listen(self):
        while (message := self._worker.receive()) is not None:
            if isinstance(message, Welcome):
                self._worker.send(Ready(()))
            elif isinstance(message, Lease):
                self._held.append(message)

    def _do(self, work):
        rows = work.stop - work.start
        updates = -(-rows // work.batch_size)
        self._worker.send(Done(work.number, rows, updates, 0.01, 0.5 * rows, 0, ()))


def at_once(thread, task, *arguments):
    """In place of a thread beside the loop, for which simulated time would pass."""
    thread._report(task(*arguments))


@pytest.mark.parametrize("late_s", [0.0, 1.0])
@pytest.mark.parametrize("stopped_s", [0.0, 2.5, 3600.0])
def test_time_in_which_nobody_ran_is_no_time_of_the_run(stopped_s, late_s, monkeypatch):
    end = StoppedOnce(stopped_s, late_s)
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: end.now})
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr("hogbatch.coordinator.background.TaskThread.submit", at_once)
    plan = make_plan(max_seconds=60.0, wait_for_workers=5.0)
    other = MagicMock()
    other.copy.return_value = None  # the model is finite
    state = Coordinator(plan, Fixed(PolicySettings()))
    components = mock_components(lambda name: state if name == "coordinator" else other)
    finish, totals = components.run_loop(end, LocalLauncher(), Callbacks())
    assert finish == Finish("finished")
    assert totals.rows == 1000 and totals.faults.workers_lost == 0
    assert late_s < totals.seconds < late_s + 2.0
