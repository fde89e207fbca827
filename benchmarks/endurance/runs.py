"""Runs that are broken while they go on, as the tests break them."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import load_file

from tests.chaos.events import EventLog
from tests.support.fault_injection import Job, wait_for

T = TypeVar("T")
Event = dict[str, Any]

ROWS = 32_561  # of a9a
GONE_WITHIN_S = 2.0
FOR_EVER = ("--epochs", 1_000_000)


class Watched:
    """A run of `hogbatch train` in a folder of its own, and its events."""

    def __init__(self, folder: Path) -> None:
        self.job = Job(folder)
        self._log = EventLog(self.job.run_dir / "events.jsonl")

    def start(self, *flags: object) -> None:
        """Begin, or go on, and wait until it trains, or has found that nothing is left to do."""
        self.job.train(*flags)
        self.wait_for(lambda: self.at_work() or self.has_finished, "the run trains")
        if self.running:
            with suppress(AssertionError):  # it has ended meanwhile
                self.job.note_memory()

    @property
    def has_finished(self) -> bool:
        """Whether it has come to its end by itself."""
        return self.job.coordinator.poll() == 0

    @property
    def running(self) -> bool:
        """Whether its coordinator is."""
        return self.job.coordinator.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait so long; True, and sooner, if the run ends by itself."""
        with suppress(subprocess.TimeoutExpired):
            self.job.coordinator.wait(seconds)
        return not self.running

    def mark(self) -> int:
        """For `since`: events from now on."""
        return len(self._log.read())

    def since(self, mark: int, *names: str) -> list[Event]:
        """Events after `mark` called by one of `names`."""
        return [event for event in self._log.read()[mark:] if event["event"] in names]

    def at_work(self, leases: int = 1) -> dict[str, int]:
        """Workers by name, with their pids, that have done so many leases in this life."""
        return self._log.at_work(leases)

    def resumed_at(self) -> int:
        """Rows trained on before this life."""
        return sum(event["rows"] for event in self.since(0, "resumed"))

    def next_life(self) -> list[Event]:
        """All events of the life that has ended; another begins."""
        return self._log.next_life()

    def wait_for(self, condition: Callable[[], T], what: str) -> T:
        """Wait for a true value, as long as the run goes on; RuntimeError if it ends."""

        def there() -> T:
            running = self.running
            found = condition()
            if not found and not running:
                raise RuntimeError(f"the run has ended: {self.job.said(self.job.coordinator)}")
            return found

        found: T = wait_for(there, what)
        return found

    def kill(self) -> list[str]:
        """Kill the coordinator; what is left of the run two seconds later."""
        self.job.coordinator.kill()
        self.job.coordinator.wait()
        return self.leftovers()

    def leftovers(self) -> list[str]:
        """What is still there two seconds after an end."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := self.job.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left + [f"file {name}" for name in self.job.strangers()]

    def interrupt(self) -> int:
        """End it as Ctrl-C does; its exit code."""
        self.job.coordinator.send_signal(signal.SIGINT)
        return int(self.job.finish())

    def close(self) -> None:
        """End all that still runs."""
        self.job.close()
        self._log.close()

    def model_is_finite(self) -> bool:
        """Whether the model that it left is."""
        tensors = load_file(self.job.run_dir / "model.safetensors")
        return all(bool(np.isfinite(tensor).all()) for tensor in tensors.values())


@contextmanager
def watched() -> Iterator[Watched]:
    """A run of which nothing is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hogbatch-faults-"))
    run = Watched(folder)
    try:
        yield run
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
