"""One training run from start to end: setup, shared memory, training, results."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from hogbatch.checkpoint.rundir import RunDirectory
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.launch.local import log_name
from hogbatch.policy.choose import find
from hogbatch.run.arrays import GivenArrays, settings_for_arrays
from hogbatch.run.callbacks import Callbacks, OnEvaluation, OnWorker
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.planning import policy_settings
from hogbatch.run.platform import Platform
from hogbatch.run.results import Run, build_model, conclude, exit_code
from hogbatch.run.resume import settings_file
from hogbatch.run.segments import RunSegments
from hogbatch.run.setup import (
    ReadData,
    check_environment,
    choose_run_dir,
    load_data,
    prepare,
    print_cache_note,
)
from hogbatch.run.this_process import PythonCall
from hogbatch.telemetry.console import Console
from hogbatch.telemetry.recorder import RunRecorder


def train(
    data: Any,
    y: Any = None,
    *,
    X_test: Any = None,
    y_test: Any = None,
    sample_weight: Any = None,
    on_evaluation: OnEvaluation | None = None,
    on_worker: OnWorker | None = None,
    on_end: Callable[[Run], object] | None = None,
    **settings: Any,
) -> Run:
    """Train on files or arrays and return the finished run.

    `data` is the path of a file, the name of the bundled sample, or X [N, F]: a matrix of numbers,
    a SciPy sparse matrix, a data frame (pandas, Polars, Arrow) or a dictionary of columns. With X,
    `y` has the labels: numbers, text or booleans [N], or 0 and 1 [N, C], or a list of label numbers
    per row. `X_test` and `y_test` replace the test set that is split off X. A row with twice the
    `sample_weight` [N] is trained on twice as often. Arrays are copied.

    Settings are the flags of `hogbatch train` with underscores, e.g. ``hidden=(512, 512)``,
    ``workers="cpu:2,gpu:0"``, ``policy="adaptive"``, ``max_seconds=60``.

    `on_evaluation` is called with each Evaluation: `seconds`, `epochs`, `rows`, `train_loss`,
    `test_loss`, `test_values` and `utilization`. `on_worker` is called with the name and the fields
    of each event of a worker, as in events.jsonl, and `on_end` with the finished run. The run ends
    with the status "stopped" if one of the first two returns True, or if it raises an exception,
    which is raised again when the model is saved.

    Raises UsageError or DataError for invalid settings or data, NoWorkers if no worker is left, and
    SaveError if the model cannot be written: its message contains the path where the model was
    saved instead, and its attribute `run` has the model. An interrupted run (Ctrl-C) returns with
    the status "stopped"; it has no model if no row was trained on.
    """
    arrays = GivenArrays(data, y, X_test, y_test, sample_weight)
    if not isinstance(data, str | Path):
        config, read = settings_for_arrays(settings), arrays.load
    elif any(each is not None for each in (y, X_test, y_test, sample_weight)):
        raise UsageError(
            "y, X_test, y_test and sample_weight need an array X; a file contains its labels, and "
            "`test` names a test file"
        )
    else:
        given = {"data": str(data), **settings}
        config, read = merge_sources(given, settings_file(given)), load_data
    callbacks = Callbacks(on_evaluation, on_worker)
    run = execute(config, PythonCall(callbacks=callbacks), read)
    if callbacks.error is not None:
        raise callbacks.error
    if on_end is not None:
        on_end(run)
    return run


def execute(config: TrainConfig, platform: Platform, read: ReadData = load_data) -> Run:
    """Execute a run on `platform`, on the data that `read` returns."""
    console = Console(config.quiet, prefix=platform.prefix)
    check_environment(config)
    run_dir = choose_run_dir(config)
    workers = platform.choose_workers(config, console)
    print_cache_note(console)
    make_policy = find(config.policy)
    logs = [log_name(number) for number in range(len(workers))]
    with RunDirectory.hold(run_dir, logs) as directory, ExitStack() as cleanup:
        _print_if_any(console, directory.recover())
        setup = prepare(config, directory, platform.in_memory(workers), console, read)
        policy = make_policy(policy_settings(config, setup.data, setup.network))
        segments = RunSegments(config, setup.data, setup.network, run_dir)
        cleanup.callback(segments.close)
        setup = replace(setup, data=segments.as_views(setup.data))  # releases the first copy
        cleanup.callback(lambda: _print_if_any(console, directory.end()))
        directory.begin(setup.settings, setup.continues)
        params, continues = segments.model.params, setup.continues
        recorder = RunRecorder(run_dir, console, params, continues, platform.marks, platform.now)
        cleanup.callback(recorder.log.close)
        components = RunComponents.build(setup, policy, segments, directory, recorder)
        outcome = platform.run(components, workers)
        if config.checkpoint_seconds and outcome.totals.rows and not outcome.finish.diverged:
            components.save_checkpoint()
        return _finished_run(components, outcome)


def _finished_run(components: RunComponents, outcome: Outcome) -> Run:
    """Save the results, print the final line and return the run; errors as in `conclude`."""
    setup, recorder, (finish, totals, refused) = components.setup, components.recorder, outcome
    trained = None
    if totals.rows:
        params, marks = recorder.params, recorder.marks
        trained = build_model(setup.config, setup.data, setup.network, params, marks)
    summary = recorder.summary(finish.status, finish.reason, totals, refused)
    recorder.log.close()
    run = Run(setup.run_dir, trained, summary, exit_code(finish))
    conclude(run, finish, recorder, components.directory)
    return run


def _print_if_any(console: Console, note: str) -> None:
    if note:
        console.say(note)
