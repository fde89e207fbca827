"""One training run from start to end: setup, shared memory, training, results."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hogbatch.checkpoint.rundir import RunDirectory
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.errors import HogbatchError, UsageError
from hogbatch.launch.local import log_name
from hogbatch.machine.allocator import return_freed_memory
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
from hogbatch.run.this_server import ThisServer
from hogbatch.telemetry.console import Console, PlainConsole
from hogbatch.telemetry.observer import Observer
from hogbatch.telemetry.recorder import RunRecorder
from hogbatch.trackers.choose import files_of
from hogbatch.trackers.tracking import Tracking


class OpenRun(NamedTuple):
    """A run that is set up."""

    components: RunComponents
    workers: tuple[WorkerRequest, ...]
    tracking: Tracking


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
    run = execute(config, ThisServer(launch=True, callbacks=callbacks), read)
    if callbacks.error is not None:
        raise callbacks.error
    if on_end is not None:
        on_end(run)
    return run


def execute(
    config: TrainConfig,
    platform: Platform,
    read: ReadData = load_data,
    console: Console | None = None,
) -> Run:
    """Execute a run on `platform`, on the data that `read` returns.

    `console` shows the run; by default it prints plain lines to stdout.
    """
    console = console or PlainConsole(config.quiet, prefix=platform.prefix)
    with open_run(config, platform, read, console) as (components, workers, tracking):
        outcome = _outcome(platform, components, workers)
        if config.checkpoint_seconds and outcome.totals.rows and not outcome.finish.diverged:
            components.save_checkpoint()
        return _finished_run(components, outcome, tracking)


@contextmanager
def open_run(
    config: TrainConfig, platform: Platform, read: ReadData, console: Console
) -> Iterator[OpenRun]:
    """Set up a run that can be trained; its memory and files are released at the end."""
    check_environment(config)
    run_dir = choose_run_dir(config)
    workers = platform.choose_workers(config, console)
    print_cache_note(console)
    make_policy = find(config.policy)
    logs = [log_name(number) for number in range(len(workers))]
    files = [*logs, *files_of(config.log)]
    with RunDirectory.hold(run_dir, files) as directory, ExitStack() as cleanup:
        _print_if_any(console, directory.recover())
        setup = prepare(config, directory, platform.in_memory(workers), console, read)
        policy = make_policy(policy_settings(config, setup.data, setup.network))
        console.busy("copying the data to shared memory")
        segments = RunSegments.of(config, setup.data, setup.network, run_dir)
        cleanup.callback(segments.close)
        setup = replace(setup, data=segments.as_views(setup.data))  # releases the first copy
        return_freed_memory()
        cleanup.callback(lambda: _print_if_any(console, directory.end()))
        directory.begin(setup.settings, setup.continues)
        params, continues = segments.model.params, setup.continues
        tracking = cleanup.enter_context(setup.tracking(console.say, platform.marks))
        observers: list[Observer] = [console, tracking]
        recorder = RunRecorder(run_dir, observers, params, continues, platform.marks, platform.now)
        cleanup.callback(recorder.log.close)
        where = {"process": platform.process, "environment": platform.environment}
        recorder.record("started", setup.started_fields() | where)
        components = RunComponents.build(setup, policy, segments, directory, console, recorder)
        yield OpenRun(components, workers, tracking)


def _outcome(
    platform: Platform, components: RunComponents, workers: tuple[WorkerRequest, ...]
) -> Outcome:
    """Train until the run ends, also if it ends with an error; record how it has ended."""
    record = components.recorder.record
    try:
        outcome = platform.run(components, workers)
    except HogbatchError as error:
        record("ended", {"status": "failed", "reason": str(error)})
        raise
    finish, totals = outcome.finish, outcome.totals
    reached = {"seconds": totals.seconds, "epochs": totals.epochs, "rows": totals.rows}
    record("ended", {"status": finish.status, "reason": finish.reason, **reached})
    return outcome


def _finished_run(components: RunComponents, outcome: Outcome, tracking: Tracking) -> Run:
    """Save the results, print the final line and return the run; errors as in `conclude`."""
    setup, recorder, (finish, totals, refused) = components.setup, components.recorder, outcome
    trained = None
    if totals.rows:
        params, marks = recorder.params, recorder.marks
        trained = build_model(setup.config, setup.data, setup.network, params, marks)
    summary = recorder.summary(finish.status, finish.reason, totals, refused)
    recorder.log.close()
    tracking.conclude(summary)
    run = Run(setup.run_dir, trained, summary, exit_code(finish))
    conclude(run, finish, components)
    return run


def _print_if_any(console: Console, note: str) -> None:
    if note:
        console.say(note)
