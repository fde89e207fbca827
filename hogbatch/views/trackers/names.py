"""The names of values and settings in experiment trackers, the same in all of them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hogbatch.config.flags import as_text
from hogbatch.config.train import FLAGS, TrainConfig
from hogbatch.events.event import Evaluation
from hogbatch.events.records import WorkerRecord

ROWS: Final = "progress/rows"  # the step
# They change no result.
NOT_SETTINGS: Final = ("events", "log", "overwrite", "quiet", "resume", "run_dir")


def evaluation_values(
    evaluation: Evaluation, workers: Iterable[WorkerRecord], rows_per_second: float | None
) -> dict[str, float]:
    """The values of an evaluation, without those that were not measured.

    `workers` are those of the run, of which the ones that have left are omitted;
    `rows_per_second` is the speed since the previous evaluation.
    """
    values = {
        "loss/train": evaluation.train_loss,
        "loss/validation": evaluation.validation_loss,
        **{
            f"metric/validation/{name}": each for name, each in evaluation.validation_values.items()
        },
        "progress/epochs": evaluation.epochs,
        "progress/noise_scale": evaluation.noise_scale,
        ROWS: evaluation.rows,
        "progress/rows_per_second": rows_per_second,
        "progress/seconds": evaluation.seconds,
    }
    for worker in workers:
        if worker.left_at is None:
            prefix = f"worker/{worker.name}"
            values[f"{prefix}/batch_size"] = worker.batch_size
            values[f"{prefix}/update_share"] = worker.update_share
            values[f"{prefix}/utilization"] = evaluation.utilization.get(worker.name)
            values[f"{prefix}/staleness"] = worker.staleness
    return {name: value for name, value in values.items() if value is not None}


def mlflow_name(name: str) -> str:
    """The name with _ in place of the characters that MLflow refuses, such as that in P@1."""
    return re.sub(r"[^\w.\- /:]", "_", name)


def run_settings(config: TrainConfig, started: Mapping[str, Any]) -> dict[str, str | float]:
    """The settings of a run: those of `config`, replaced by the fields of the event "started".

    The event has the version of hogbatch, the description of the data, the network, and the values
    of settings whose default depends on the data. Values that are None or empty are omitted.
    """
    configured = {name: getattr(config, name) for name in FLAGS if name not in NOT_SETTINGS}
    known = {name: value for name, value in started.items() if value not in (None, {})}
    return {
        name: value if isinstance(value, str | int | float) else as_text(value)
        for name, value in (configured | known).items()
        if value is not None
    }
