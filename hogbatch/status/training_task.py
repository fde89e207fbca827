"""Reads from a run directory what a plan for several servers depends on."""

from pathlib import Path

from hogbatch.checkpoint.names import MODEL
from hogbatch.cluster.estimate import Task
from hogbatch.errors import DataError, UsageError
from hogbatch.model.file import load_model
from hogbatch.status.run_files import expect_run, read_summary


def task_of(run_dir: Path, merges_per_epoch: float) -> Task:
    """The task of a run that has ended. UsageError if it has no model or has not trained."""
    expect_run(run_dir)
    summary = read_summary(run_dir)
    if summary is None:
        raise UsageError(f"{run_dir} has no results yet; expected a run that has ended")
    try:
        rows, epochs, seconds = (float(summary[key]) for key in ("rows", "epochs", "train_seconds"))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{run_dir}: the summary is damaged: {error!r}") from None
    if not (rows > 0 and epochs > 0 and seconds > 0):
        raise UsageError(f"{run_dir} has not trained on any row; expected a run with a model")
    model = load_model(run_dir / MODEL)
    parameters = sum(tensor.size for tensor in model.tensors.values())
    return Task(parameters, round(rows / epochs), rows / seconds, merges_per_epoch)
