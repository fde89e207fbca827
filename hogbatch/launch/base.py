"""What starts workers. A launcher for other machines has these four methods too."""

from pathlib import Path
from typing import Protocol

from hogbatch.config import WorkerRequest


class Launcher(Protocol):
    """Starts worker processes for one run and knows how they ended."""

    def start(self, request: WorkerRequest, run_dir: Path) -> None:
        """Start one worker that attaches to `run_dir`."""

    def all_ended(self) -> str | None:
        """Why, if some were started and none runs any more."""

    def cause_of_death(self, pid: int) -> str:
        """What is known of the end of process `pid`."""

    def stop(self, patience_s: float) -> None:
        """See every worker out, after `patience_s` by force; none runs when this returns."""
