"""Runs whose processes are killed while they train, and their events."""

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.numpy import load_file

from benchmarks.common.event_log import EventReader
from benchmarks.common.job import WITHIN_S, Job, wait_for
from hogbatch.events.event import Event, Resumed

T = TypeVar("T")
E = TypeVar("E", bound=Event)

ROWS = 29_305  # of a9a that are trained on
GONE_WITHIN_S = 2.0
ENDLESS = ("--epochs", 1_000_000)


class WatchedRun(Job):
    """A run of `hogbatch train` whose events are read while it writes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = EventReader(self.run_dir / "events.jsonl")

    def start(self, *flags: object) -> None:
        """Start or resume the run, and wait until it trains or has finished."""
        self.train(*flags)
        self.wait_in_run(lambda: self.log.at_work() or self.coordinator.poll() == 0, "it trains")
        if self.running:
            with suppress(AssertionError):  # it has exited in the meantime
                self.note_memory()

    @property
    def running(self) -> bool:
        """Whether its coordinator is running."""
        return self.coordinator.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait up to `seconds`; whether the run has ended by then."""
        with suppress(subprocess.TimeoutExpired):
            self.coordinator.wait(seconds)
        return not self.running

    def since(self, mark: int, kind: type[E]) -> list[E]:
        """Events of this kind in this life of the run, without the first `mark` of all events."""
        return [event for event in self.log.read()[mark:] if isinstance(event, kind)]

    def resumed_at(self) -> int:
        """Rows trained on before this life of the run."""
        return sum(event.rows for event in self.since(0, Resumed))

    def wait_in_run(self, condition: Callable[[], T], what: str, within: float = WITHIN_S) -> T:
        """Wait for a true value while the run is in progress; RuntimeError if the run ends."""

        def found_or_ended() -> T:
            running = self.running
            found = condition()
            if not found and not running:
                raise RuntimeError(f"the run has ended: {self.said(self.coordinator)}")
            return found

        return wait_for(found_or_ended, what, within)

    def kill(self) -> list[str]:
        """Kill the coordinator; return the processes, sockets and memory left two seconds later.

        Files that it was writing may be left, too, until the next start.
        """
        self.coordinator.kill()
        self.coordinator.wait()
        return self.remaining()

    def remaining(self) -> list[str]:
        """The processes, sockets and memory left two seconds after the end."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := self.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def remaining_with_files(self) -> list[str]:
        """The same, with temporary files."""
        return self.remaining() + [f"file {name}" for name in self.temporary_files()]

    def interrupt(self) -> int:
        """Stop it as Ctrl-C does; return its exit code."""
        self.coordinator.send_signal(signal.SIGINT)
        return self.finish()

    def close(self) -> None:
        """Stop all processes that still run."""
        super().close()
        self.log.close()

    def model_is_finite(self) -> bool:
        """Whether all weights of its model file are finite."""
        tensors = load_file(self.run_dir / "model.safetensors")
        return all(bool(np.isfinite(tensor).all()) for tensor in tensors.values())


@contextmanager
def watched() -> Iterator[WatchedRun]:
    """A run in a temporary folder that is removed afterwards."""
    with (
        tempfile.TemporaryDirectory(
            prefix="hogbatch-faults-", ignore_cleanup_errors=True
        ) as folder,
        closing(WatchedRun(Path(folder))) as run,
    ):
        yield run
