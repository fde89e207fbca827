"""The interface of launchers, which start workers, on this server or elsewhere."""

from pathlib import Path
from typing import Protocol

from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.adapters import ProcessAdapter
from hogbatch.machine.topology import Cores


class Launcher(ProcessAdapter, Protocol):
    """Starts the worker processes of one run and, as `ProcessAdapter`, reports how they exited."""

    def start(self, request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> None:
        """Start one worker that attaches to `run_dir`.

        Each of its threads is pinned to one of the `cores`; without cores, none is pinned.
        """

    def stop(self, patience_s: float) -> None:
        """Wait up to `patience_s` for the workers to exit, then kill the remaining ones."""
