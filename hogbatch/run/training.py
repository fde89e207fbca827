"""One training run from start to end: setup, shared memory, training, results."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from msgspec import UNSET, structs

from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.data.load import LoadedData
from hogbatch.errors import INTERRUPTED, HogbatchError, NoWorkers
from hogbatch.events.event import Ended
from hogbatch.events.event_log import EventLog
from hogbatch.events.names import EVENTS, MEMBERS, SERVERS
from hogbatch.events.recorder import RunRecorder
from hogbatch.events.records import Observer
from hogbatch.machine.allocator import return_freed_memory
from hogbatch.machine.cachedir import find_cache_root
from hogbatch.policy.choose import find
from hogbatch.run.assessment import assess
from hogbatch.run.better_data import with_better_features, with_better_labels
from hogbatch.run.components import Outcome, RunComponents, coordinator_of
from hogbatch.run.initial import start_from
from hogbatch.run.label_vectors import with_label_vectors
from hogbatch.run.launch.local import log_name
from hogbatch.run.members import Others, combine, train_members
from hogbatch.run.planning import policy_settings
from hogbatch.run.platform import Platform
from hogbatch.run.recipe import with_better_recipe, with_epochs
from hogbatch.run.results import Run, build_model, conclude
from hogbatch.run.rundir import PREVIOUS, RunDirectory, temporary_directory
from hogbatch.run.segments import RunData, RunSegments
from hogbatch.run.setup import (
    ReadData,
    check_environment,
    choose_run_dir,
    load_data,
    prepare,
)
from hogbatch.run.this_server import ThisServer
from hogbatch.views.console import Console, PlainConsole
from hogbatch.views.trackers.tracking import CLASSES, Tracking


class OpenRun(NamedTuple):
    """A run that is set up."""

    components: RunComponents
    workers: tuple[WorkerRequest, ...]
    tracking: Tracking


def execute(
    config: TrainConfig,
    platform: Platform,
    read: ReadData = load_data,
    console: Console | None = None,
    *,
    temporary: bool = False,
) -> Run:
    """Execute a run on `platform`, on the data that `read` returns.

    `console` shows the run; by default it prints plain lines to stdout. The files of a `temporary`
    run are not kept: it has neither run directory nor checkpoints.
    """
    if temporary:
        config = replace(config, checkpoint_seconds=0)
    console = console or PlainConsole(config.quiet, prefix=platform.prefix)
    with (
        closing(platform),
        open_run(config, platform, read, console, temporary=temporary) as opened,
    ):
        components, tracking = opened.components, opened.tracking
        another = partial(execute, console=PlainConsole(quiet=True), temporary=temporary)
        try:
            train = partial(_train, opened)
            outcome, others = train_members(components, platform, train, another)
        except HogbatchError as error:
            components.recorder.record(Ended("failed", str(error)))
            raise
        return _finished_run(components, outcome, others, tracking)


def _train(opened: OpenRun, platform: Platform) -> Outcome:
    """Train one model, and write a checkpoint from which that can be continued."""
    components = opened.components
    outcome = platform.run(components, opened.workers)
    components.recorder.add_metrics(components.metrics.of_kept())
    finish, rows = outcome.finish, outcome.totals.rows
    checkpoints = components.setup.config.checkpoint_seconds
    if checkpoints and rows and not (finish.diverged or finish.model_lost):
        components.save_checkpoint()
    return outcome


@contextmanager
def open_run(
    config: TrainConfig,
    platform: Platform,
    read: ReadData,
    console: Console,
    *,
    temporary: bool = False,
) -> Iterator[OpenRun]:
    """Set up a run that can be trained; its memory and files are released at the end."""
    check_environment(config)
    workers = platform.choose_workers(config, console)
    if note := find_cache_root().note:
        console.say(note)
    make_policy = platform.policy(find(config.policy))
    logs = [log_name(number) for number in range(len(workers))]
    logged = [file for name in config.log for file in CLASSES[name][2]]
    files = [*logs, *logged]
    if config.cluster is not None:
        files.append(SERVERS)
    if config.members != 1:
        files.append(MEMBERS)
    with ExitStack() as cleanup:
        enter = cleanup.enter_context
        run_dir = enter(temporary_directory()) if temporary else choose_run_dir(config)
        directory = enter(RunDirectory.hold(run_dir, files, temporary=temporary))
        choose = partial(_choose, platform)
        setup = prepare(config, directory, platform.in_memory(workers), console, read, choose)
        config = replace(setup.config, members=platform.members(setup))
        plan = platform.plan(config, setup.plan, setup.network)
        setup = replace(setup, config=config, plan=plan)
        policy = make_policy(policy_settings(config, setup.data, setup.network))
        console.busy("copying the data to shared memory")
        segments = RunSegments.of(config, setup.data, setup.network, run_dir)
        cleanup.callback(segments.close)
        if setup.start is not None:
            start_from(segments, setup.start)
        if isinstance(setup.data, LoadedData):  # releases the first copy
            setup = replace(setup, data=segments.as_views(setup.data))
        return_freed_memory()
        if directory.begin(setup.settings, setup.continues):
            console.say(f"the earlier run was moved to {run_dir / PREVIOUS}")
        params, continues = segments.model.params, setup.continues
        tracking = enter(setup.tracking(console.say, platform.marks))
        observers: list[Observer] = [console, tracking]
        log = EventLog(
            run_dir / EVENTS, continues, platform.marks, platform.now, config.events == "combined"
        )
        cleanup.callback(log.close)
        recorder = RunRecorder(log, observers, params, platform.marks)
        rehearsed = platform.marks.get("rehearsed", UNSET)
        recorder.record(structs.replace(setup.started(), **platform.origin, rehearsed=rehearsed))
        coordinator = coordinator_of(setup, policy, segments, recorder)
        parts = setup, segments, directory, console, recorder, coordinator
        components = RunComponents(*parts)
        yield OpenRun(components, workers, tracking)


def _choose(
    platform: Platform, config: TrainConfig, data: RunData, console: Console
) -> tuple[TrainConfig, RunData]:
    """`config` and `data`, with what short runs decide on this server."""
    if not isinstance(platform, ThisServer) or not isinstance(data, LoadedData):
        return config, data
    another = partial(execute, console=PlainConsole(quiet=True))
    config, data = with_better_features(config, data, another, console)
    data = with_better_labels(config, data, another, console)
    config = with_better_recipe(config, data, another, console)
    return with_epochs(config, data, another, console), data


def _finished_run(
    components: RunComponents, outcome: Outcome, others: Others, tracking: Tracking
) -> Run:
    """Save the results, print the final line and return the run; errors as in `conclude`."""
    setup, recorder, (finish, totals) = components.setup, components.recorder, outcome
    trained = None
    if totals.rows:
        kept = recorder.params, recorder.marks, recorder.threshold
        trained = build_model(setup.config, setup.data, setup.network, *kept)
        if others:
            trained = combine(trained, others, components)
        if setup.has_label_vectors and finish.status != "failed":
            trained = with_label_vectors(trained, components)

    @cache
    def assessed() -> Run:
        for event in assess(components, finish):
            recorder.record(event)
        reached = totals.seconds, totals.epochs, totals.rows
        recorder.record(Ended(finish.status, finish.reason or "", *reached))
        summary = recorder.summary(finish.status, finish.reason or "", totals)
        recorder.log.close()
        tracking.conclude(summary)
        run_dir = None if components.directory.temporary else setup.run_dir
        hidden, config = setup.network.hidden, setup.config
        chosen = config.recipe, hidden, config.label_transform, config.number_values
        code = {"stopped": INTERRUPTED, "failed": NoWorkers.exit_code}.get(finish.status, 0)
        return Run(run_dir, trained, summary, code, *chosen)

    return conclude(trained, assessed, finish, components)
