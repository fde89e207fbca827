"""What starts workers. A launcher for other machines has these methods too."""

from pathlib import Path
from typing import Protocol

from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.loop import Children
from hogbatch.machine.topology import Cores


class Launcher(Children, Protocol):
    """Starts worker processes for one run and, as `Children`, knows how they ended."""

    def start(self, request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> None:
        """Start one worker that attaches to `run_dir`.

        `cores` are those of this server that its threads are pinned to, one each; none: no pinning.
        """

    def stop(self, patience_s: float) -> None:
        """See every worker out, after `patience_s` by force; none runs when this returns."""
