"""The trackers that a run asks for: the packages they need, their files, and their creation."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from hogbatch.checkpoint.names import METRICS, MLFLOW_RUN, TENSORBOARD, WANDB, WANDB_RUN
from hogbatch.errors import UsageError
from hogbatch.trackers.base import Tracker
from hogbatch.trackers.csv_file import CsvFile
from hogbatch.trackers.remote import RemoteTracker


@dataclass(frozen=True, slots=True)
class TrackerKind:
    """What a tracker needs and writes."""

    modules: tuple[str, ...]  # that must be installed
    files: tuple[str, ...]  # in the run directory


KINDS: Final = {
    "csv": TrackerKind((), (METRICS,)),
    "tensorboard": TrackerKind(("tensorboard",), (TENSORBOARD,)),
    "mlflow": TrackerKind(("mlflow",), (MLFLOW_RUN,)),
    "wandb": TrackerKind(("wandb",), (WANDB, WANDB_RUN)),
}


def expect_installed(names: Sequence[str]) -> None:
    """UsageError if a package that one of the trackers needs is not installed."""
    for name in names:
        if absent := [each for each in KINDS[name].modules if not _installed(each)]:
            raise UsageError(
                f"log {name} needs the package {absent[0]}, which is not installed: "
                f"pip install 'hogbatch[{name}]'"
            )


def files_of(names: Sequence[str]) -> list[str]:
    """The files and folders that the trackers write in the run directory."""
    return [file for name in names for file in KINDS[name].files]


def tracker_for_run(name: str) -> Tracker:
    """The tracker `name` as the process of a run uses it."""
    return CsvFile() if name == "csv" else RemoteTracker(name)


def create(name: str) -> Tracker:
    """The tracker `name` in this process; imports its package, which may take seconds."""
    match name:
        case "tensorboard":
            from hogbatch.trackers.tensorboard_events import TensorBoardEvents

            return TensorBoardEvents()
        case "mlflow":
            from hogbatch.trackers.mlflow_run import MlflowRun

            return MlflowRun()
        case "wandb":
            from hogbatch.trackers.wandb_run import WandbRun

            return WandbRun()
    raise ValueError(f"there is no tracker {name!r} for a process of its own")


def _installed(module: str) -> bool:
    """Whether a package is installed; a mere folder of its name, as W&B makes, is not one."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None
