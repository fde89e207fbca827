import os
import re
import sys
import threading
from contextlib import closing

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.adapters import RunAdapters
from hogbatch.coordinator.commands import Finish, Shuffle
from hogbatch.coordinator.loop import coordinator_loop
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.fixed import Fixed
from hogbatch.run.launch import local, restarts
from hogbatch.run.launch.local import LocalLauncher
from hogbatch.store.fence import Fences
from tests.support.coordinator_stage import make_plan
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
        fences=Fences(np.zeros((4, 8), np.int64)),
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


FAILING = """
import os
number = os.path.getsize({log!r})
print(number, flush=True)
os._exit(12 if number < 2 * {failures} else 0)
"""  # each attempt prints two characters


@pytest.fixture
def run(segment_server, tmp_path, monkeypatch):
    """Runs a loop with one worker that never attaches and fails a given number of times.

    Returns how the run ended, what was recorded, and the worker's log.
    """
    launcher, recorded = LocalLauncher(), []

    def call(failures):
        log = tmp_path / "worker-0.log"
        code = FAILING.format(log=str(log), failures=failures)
        monkeypatch.setattr(local, "command", lambda *_: [sys.executable, "-SEc", code])
        monkeypatch.setattr(restarts, "MAX_PAUSE_S", 0.01)
        launcher.start(WorkerRequest("gpu", ordinal=0), tmp_path)
        given = adapters(segment_server, lambda *_: None, launcher, lambda *r: recorded.append(r))
        finish, _ = coordinator_loop(Coordinator(make_plan(), Fixed(PolicySettings())), given).run()
        return finish, recorded, log.read_text()

    yield call
    launcher.stop(0.0)


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_worker_whose_device_fails_is_restarted(run, failures):
    finish, recorded, log = run(failures)
    assert finish.reason.startswith("all workers have exited; the last one exited with code 0")
    assert [event for event, _ in recorded] == ["worker_restarted"] * failures
    assert [fields["times"] for _, fields in recorded] == [1, 2, 3][:failures]
    assert len({fields["pid"] for _, fields in recorded}) == failures
    assert all((f["runs_on"], f["most"]) == ("gpu:0", 3) for _, f in recorded)
    assert log.splitlines() == ["0", "2", "4", "6"][: failures + 1]


def test_a_device_that_keeps_failing_is_not_restarted_and_the_log_has_the_reason(run):
    finish, recorded, log = run(99)
    assert [event for event, _ in recorded] == ["worker_restarted"] * 3 + ["worker_given_up"]
    reason = recorded[-1][1]["reason"]
    assert re.match(r"4 deaths in \d+ s without a finished lease; ", reason)
    assert finish.status == "failed"
    assert "the last one exited with code 12; " in finish.reason
    assert finish.reason.endswith("ends with:\n0\n2\n4\n6")
    assert log.splitlines() == ["0", "2", "4", "6"]
