"""Starts the processes of a run, watches them, and runs single commands, for integration tests."""

import os
import signal
import subprocess
import sys

from benchmarks.common import job
from benchmarks.common.job import WITHIN_S, wait_for
from benchmarks.common.run_history import Life, audit
from hogbatch.events.event import EpochEnded, Event, Started

__all__ = ["ENDLESS", "ROWS", "WITHIN_S", "Job", "cli", "wait_for"]

ROWS = 29_305  # of a9a that are trained on
ENDLESS = ("--max-seconds", 1000)  # the test ends the run


class Job(job.Job):
    """A run, with what most tests do at its end."""

    def interrupt(self, number=signal.SIGINT):
        """End the run by a signal, as the user does, and check its exit code."""
        self.coordinator.send_signal(number)
        assert self.finish() == 130, self.said(self.coordinator)

    def kill(self):
        """End the coordinator by SIGKILL, and wait until its workers are gone, too."""
        self.coordinator.kill()
        self.coordinator.wait()
        wait_for(lambda: not self.processes(), "the workers end")

    def end_of_next_epoch(self):
        """Wait until one more epoch has ended."""
        self.wait_for_event(EpochEnded, len(self.events(EpochEnded)) + 1)

    def check_rows(self, rows=ROWS):
        """Check that epochs that have ended have each row once, and the last one none twice.

        Returns how many epochs have ended. A run that was resumed is checked in each of its lives.
        """
        events = self.events(Event)
        begins = [n for n, event in enumerate(events) if isinstance(event, Started)]
        lives = [
            Life.of(events[begin:end])
            for begin, end in zip(begins, [*begins[1:], None], strict=True)
        ]
        assert audit(lives, rows) == []
        return sum(isinstance(event, EpochEnded) for event in lives[-1].events)


def cli(*arguments, cwd=None, env=None, input=""):
    """Run one hogbatch command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hogbatch.cli.main", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=input,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
