"""Training from Python: `hogbatch.train`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hogbatch.cluster.choose import choose_platform, reader
from hogbatch.config.train import TrainConfig
from hogbatch.data.frames import is_frame
from hogbatch.errors import UsageError
from hogbatch.run.arrays import GivenArrays, settings_for_arrays
from hogbatch.run.callbacks import Callbacks, OnEvaluation, OnWorker
from hogbatch.run.refit import execute_with_refit
from hogbatch.run.results import Run
from hogbatch.run.resume import merge_settings
from hogbatch.run.setup import ReadData
from hogbatch.run.training import execute
from hogbatch.views.live.choose import console_in_python


def train(
    data: Any,
    y: Any = None,
    *,
    X_validation: Any = None,
    y_validation: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    on_evaluation: OnEvaluation | None = None,
    on_worker: OnWorker | None = None,
    on_end: Callable[[Run], object] | None = None,
    verbose: bool = True,
    **settings: Any,
) -> Run:
    """Train on files or arrays and return the finished run.

    `data` is the path of a file, the name of the bundled sample, or X [N, F]: a matrix of numbers,
    a SciPy sparse matrix, a data frame (pandas, Polars, Arrow) or a dictionary of columns. With X,
    `y` has the labels: numbers, text or booleans [N], or 0 and 1 [N, C], or a list of label numbers
    per row, or several numbers per row [N, T]. `X_test` and `y_test` replace the test set that is
    split off X, `X_validation` and `y_validation` the validation set, which chooses the kept model.
    `sample_weight` [N] multiplies the losses of the rows, and `class_weight`, "balanced" or a dict,
    those of the rows of a class. Arrays are copied. A frame may contain the labels and weights:
    ``train(frame, label="churn", sample_weight="times")``, or ``label=["width", "height"]``.

    Settings are the flags of `hogbatch train` with underscores, e.g. ``hidden=(512, 512)``,
    ``workers="cpu:2,gpu:0"``, ``policy="adaptive"``, ``max_seconds=60``, or for several servers
    ``cluster="auto", servers=4``. `data` may be a `ray.data.Dataset` then, or otherwise, whose
    labels are in the column `label` (default: the last one).

    Files (model, results, events and checkpoints) are written only with ``run_dir="DIR"``. Notes,
    progress and the result are printed unless `verbose` is False.

    `on_evaluation` is called with each Evaluation: `seconds`, `epochs`, `rows`, `train_loss`,
    `validation_loss`, `validation_values` and `utilization`. `on_worker` is called with the name
    and the fields of each event of a worker, as in events.jsonl, and `on_end` with the finished
    run. The run ends with the status "stopped" if one of the first two returns True, or if it
    raises an exception, which is raised again when the model is saved.

    Raises UsageError or DataError for invalid settings or data, NoWorkers if no worker is left, and
    SaveError if the model cannot be written: its message contains the path where the model was
    saved instead, and its attribute `run` has the model. An interrupted run (Ctrl-C) returns with
    the status "stopped"; it has no model if no row was trained on.
    """
    if not verbose:
        settings["quiet"] = True
    if type(data).__module__.startswith("ray.data"):
        from hogbatch.cluster.ray.dataset import read_dataset  # here: Ray is optional

        data, y = read_dataset(data, settings.pop("label", None))
    given = GivenArrays(
        *(data, y, X_test, y_test, X_validation, y_validation),
        sample_weight=sample_weight,
        class_weight=class_weight,
    )
    config, read = _prepared(given, settings)
    if config.refit and X_validation is not None:
        raise UsageError("refit trains on the rows of X: append X_validation, y_validation to X, y")

    def once(settings: TrainConfig) -> Run:
        finds_rows = settings.precedes_refit or not settings.refit
        return _execute(settings, read, Callbacks(on_evaluation if finds_rows else None, on_worker))

    run = execute_with_refit(config, once)
    if on_end is not None:
        on_end(run)
    return run


def _execute(config: TrainConfig, read: ReadData | None, callbacks: Callbacks) -> Run:
    platform = choose_platform(config, launch=True, callbacks=callbacks)
    console = console_in_python(quiet=config.quiet, plain=config.plain)
    temporary = not _keeps_files(config)
    run = execute(config, platform, read or reader(config, platform), console, temporary=temporary)
    if callbacks.error is not None:
        raise callbacks.error
    return run


def _prepared(given: GivenArrays, settings: dict[str, Any]) -> tuple[TrainConfig, ReadData | None]:
    """The configuration of a run and how its arrays are read; None: X is a path.

    UsageError for arguments and settings that contradict each other.
    """
    if isinstance(given.class_weight, str):
        settings["class_weight"], given = given.class_weight, replace(given, class_weight=None)
    if is_frame(given.X) and settings.get("label"):
        label = settings.pop("label")
        given = given.with_labels(label if isinstance(label, list | tuple) else [label])
    if not isinstance(given.X, str | Path):
        if isinstance(given.sample_weight, str):
            given = given.with_weights(given.sample_weight)
        return settings_for_arrays(settings), given.load
    if isinstance(given.sample_weight, str):
        settings["sample_weight"], given = given.sample_weight, replace(given, sample_weight=None)
    if given.class_weight is not None:
        raise UsageError(
            "class_weight: with a file as data, expected 'balanced' or a file; got a dict"
        )
    held_out = given.X_validation, given.y_validation, given.X_test, given.y_test
    if any(each is not None for each in (given.y, given.sample_weight, *held_out)):
        raise UsageError(
            "y, X_validation, y_validation, X_test, y_test and weights of rows need an array X; a "
            "file contains its labels, `validation` and `test` name files, sample_weight a column"
        )
    return merge_settings({"data": str(given.X), **settings}), None


def _keeps_files(config: TrainConfig) -> bool:
    """Whether the run has a run directory. UsageError if it lacks one for files that are wanted."""
    if config.run_dir is not None or config.resume is not None:
        return True
    usual = TrainConfig()
    for name in ("log", "checkpoint_seconds"):
        if (value := getattr(config, name)) and value != getattr(usual, name):
            raise UsageError(f"{name} needs a directory for its files: give run_dir")
    return False
