"""Stage tests: the tests that need a GPU, each recorded when it has ended.

A test that ends its process, or breaks the device for it, does not end the others.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_acceptance.pytest_events import read_events
from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Stage

PATHS: Final = ("tests/gpu", "tests/unit/kernels")
# Importing these needs SciPy, which a machine may lack; they contain no test that needs a GPU.
IGNORED: Final = (
    "--ignore=tests/unit/kernels/cpu",
    "--ignore=tests/unit/kernels/test_blocks.py",
)
QUICK_PATHS: Final = ("tests/gpu/test_cuda_device.py",)
QUICK_CHOICE: Final = "pinned"
# Warnings of other packages, in the versions of this machine, are no errors.
FLAGS: Final = ("-m", "gpu", "--require", "gpu", "-W", "default", "-q", "-p", "no:cacheprovider")
# A wait for the device cannot be interrupted, so the process of a test that takes too long ends.
TIME_LIMIT: Final = ("--timeout=100", "--timeout-method=thread")
MESSAGE_CHARACTERS: Final = 3000


def run(stage: Stage) -> None:
    """Run pytest until every test has been started, or nothing more starts."""
    paths = list(QUICK_PATHS if stage.settings.quick else PATHS)
    choice = ["-k", QUICK_CHOICE] if stage.settings.quick else []
    with tempfile.TemporaryDirectory() as directory:
        log = OutcomeLog(Path(directory) / "events", stage.record)
        while stage.left_s > 0:
            before = log.started
            code = stage.follow([*command(log.path), *paths, *choice], log.poll)
            log.interrupted("timed out" if code is None else f"its process: {ended(code)}")
            if (code in (None, 0, 1, 5) and not log.stopped) or log.started == before:
                break
        log.summarise(code if stage.left_s > 0 else None)


def command(events: Path) -> list[str]:
    """The command of pytest with the plugin."""
    # In one word: pytest looks for its configuration above every word that is a path.
    plugin = ("-p", "benchmarks.gpu_acceptance.pytest_events", f"--events={events}")
    return [sys.executable, "-m", "pytest", *plugin, *FLAGS, *TIME_LIMIT, *IGNORED]


def ended(code: int) -> str:
    """How a process ended."""
    return f"died by signal {-code}" if code < 0 else f"exit code {code}"


class OutcomeLog:
    """Transfers the events of pytest to the record."""

    def __init__(self, path: Path, record: Record) -> None:
        self.path, self._record = path, record
        self._read = 0
        self._running = ""
        self.started = 0
        self.collected = 0  # by the first process
        self.outcomes: dict[str, int] = {}

    @property
    def stopped(self) -> bool:
        """Whether tests that were collected have not been started."""
        return self.started < self.collected

    def poll(self) -> None:
        """Record what has happened since the last call."""
        events = read_events(self.path)
        for event in events[self._read :]:
            if event["event"] == "collected":
                self.collected = self.collected or event["tests"]
            elif event["event"] == "started":
                self._running = event["name"]
                self.started += 1
            else:
                self._running = ""
                self._ended(event)
        self._read = len(events)

    def interrupted(self, reason: str) -> None:
        """Record the test that was running when its process ended."""
        if self._running:
            self._record.fail(self._running, reason)
            self._count("failed")
        self._running = ""

    def summarise(self, code: int | None) -> None:
        """Record the counts; an error unless all tests were run, and at least one."""
        counts: dict[str, Any] = {**self.outcomes, "collected": self.collected}
        if self.started == 0:
            how = "killed at its limit" if code is None else ended(code)
            self._record.fail("all tests", f"no test was started: pytest: {how}", counts)
        elif self.stopped:
            self._record.fail("all tests", f"{self.collected - self.started} not started", counts)
        else:
            self._record.add("all tests", counts)

    def _ended(self, event: dict[str, Any]) -> None:
        name, outcome = event["name"], event["outcome"]
        self._count(outcome)
        if outcome == "failed":
            self._record.fail(name, last(event["message"]), event["message"][-MESSAGE_CHARACTERS:])
        elif outcome == "skipped":
            self._record.skip(name, event["message"])
        else:
            self._record.add(name, {"outcome": outcome, "seconds": round(event["seconds"], 3)})

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def last(message: str) -> str:
    """The line of a traceback that has the error: the last one that pytest marks."""
    lines: Sequence[str] = message.strip().splitlines() or [""]
    marked = [line[2:].strip() for line in lines if line.startswith("E ")]
    return marked[0] if marked else lines[-1]
