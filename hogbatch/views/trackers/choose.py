"""The trackers that a run can have."""

from collections.abc import Callable
from typing import Final

from hogbatch.errors import UsageError
from hogbatch.events.names import METRICS, MLFLOW_RUN, TENSORBOARD, WANDB, WANDB_RUN
from hogbatch.views.trackers.base import RunStart, Tracker
from hogbatch.views.trackers.csv_file import CsvFile

FILES: Final = {  # of each tracker in the run directory
    "csv": (METRICS,),
    "tensorboard": (TENSORBOARD,),
    "mlflow": (MLFLOW_RUN,),
    "wandb": (WANDB, WANDB_RUN),
}


def tracker_class(name: str) -> Callable[[RunStart], Tracker]:
    """Import the tracker `name`; UsageError if its package cannot be imported."""
    try:
        match name:
            case "tensorboard":
                from hogbatch.views.trackers.tensorboard_events import TensorBoardEvents

                return TensorBoardEvents
            case "mlflow":
                from hogbatch.views.trackers.mlflow_run import MlflowRun

                return MlflowRun
            case "wandb":
                from hogbatch.views.trackers.wandb_run import WandbRun

                return WandbRun
    except ImportError as error:
        raise UsageError(
            f"log {name} needs the package {name}, which cannot be imported ({error}): "
            f"pip install 'hogbatch[{name}]'"
        ) from error
    return CsvFile
