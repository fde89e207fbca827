"""Preparation of a run before it allocates shared memory or starts processes."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from hogbatch.config.backbone import shape_of
from hogbatch.config.metrics import NUMBERS
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.sources import to_toml
from hogbatch.config.train import RUNS, TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.plan import Plan
from hogbatch.data.cache import DataCache
from hogbatch.data.load import LoadedData, load
from hogbatch.data.memory import expect_ids
from hogbatch.data.order import Fractions
from hogbatch.data.progress import ReadProgress
from hogbatch.data.raw import ReadOptions
from hogbatch.data.source import ARRAYS, plain_name, shown
from hogbatch.data.table.kinds import TableOptions
from hogbatch.data.weights import read_class_weights
from hogbatch.errors import UsageError
from hogbatch.events.event import Started
from hogbatch.machine.allocator import return_freed_memory
from hogbatch.machine.budget import byte_size
from hogbatch.machine.limits import check_limits
from hogbatch.model.footprint import FLOAT, expect_memory
from hogbatch.model.network import Network
from hogbatch.model.trained import Model
from hogbatch.run.checkpoint.snapshots import checkpoints_kept
from hogbatch.run.initial import initial_model, network_of
from hogbatch.run.large import (
    SUITABLE,
    MappedData,
    expect_within,
    larger_than_memory,
    load_mapped,
)
from hogbatch.run.memory import memory_for
from hogbatch.run.planning import (
    has_label_vectors,
    metric_for,
    network_for,
    plan_for,
    with_recipe,
)
from hogbatch.run.resume import (
    ResumePoint,
    expect_checkpoints,
    find_resume_point,
    identity_of,
    resumed_dir,
)
from hogbatch.run.rundir import RunDirectory
from hogbatch.run.segments import RunData
from hogbatch.version import version
from hogbatch.views.console import Console
from hogbatch.views.trackers.base import RunStart
from hogbatch.views.trackers.names import run_settings
from hogbatch.views.trackers.tracking import Tracking, tracker_class

MAX_COLUMNS: Final = 1000  # in the log
ReadData = Callable[[TrainConfig, Console], RunData]  # prints notes about the data
Choose = Callable[[TrainConfig, RunData, Console], tuple[TrainConfig, RunData]]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """A run whose data are read, and for which there is enough memory."""

    config: TrainConfig
    run_dir: Path
    data: RunData
    network: Network
    start: Model | None  # the model that training begins with; None: random weights
    plan: Plan
    identity: Mapping[str, str | int]  # what a checkpoint and a run that resumes it must share
    resume_point: ResumePoint | None  # None: a new run
    continues: bool  # the run resumes one in the same run directory

    @property
    def loaded(self) -> LoadedData:
        """The data of a run whose rows are in the memory of this server."""
        assert isinstance(self.data, LoadedData), "divided data are on other servers"
        return self.data

    @property
    def has_label_vectors(self) -> bool:
        """Whether label vectors are added to the scores of the network."""
        return has_label_vectors(self.config, self.data)

    @property
    def settings(self) -> str:
        """The configuration as TOML, with which the run can be repeated in another directory."""
        return to_toml(replace(self.config, run_dir=None, resume=None, overwrite=False))

    def started(self) -> Started:
        """The event that the run has started, as far as it does not depend on this process."""
        plan, stopping = self.plan, self.plan.stopping
        columns = self.data.summaries[:MAX_COLUMNS] if isinstance(self.data, LoadedData) else ()
        return Started(
            hogbatch=version(),
            data=shown(self.config.data),
            train_rows=plan.train_rows,
            validation_rows=plan.validation_rows,
            test_rows=plan.test_rows,
            features=self.data.train_sizes.features,
            sparse=self.data.train_sizes.sparse,
            network=self.network.widths,
            loss=self.network.loss,
            targets=plan.targets,
            metric=stopping.metric,
            epochs=stopping.epochs,
            max_seconds=stopping.max_seconds,
            patience=stopping.patience,
            target_loss=stopping.target_loss,
            columns=[column._asdict() for column in columns],
        )

    def tracking(self, say: Callable[[str], None], marks: Mapping[str, Any]) -> Tracking:
        """The experiment trackers of the run; `say` prints a line, `marks` are further settings."""
        settings = run_settings(self.config, self.started().fields | dict(marks))
        point = self.resume_point
        described = point.described if point else None
        reached = (described.state.seconds, described.state.rows) if described else (0.0, 0)
        evaluated = described.history[-1].rows if described and described.history else -1
        rows = evaluated if self.continues else None
        run = RunStart(self.run_dir.absolute(), settings, time.time() - reached[0], rows)
        return Tracking(self.config.log, run, say, reached)


def check_environment(config: TrainConfig) -> None:
    """UsageError or DataError if the run cannot start; called before anything is written."""
    check_limits()
    for name in config.log:
        tracker_class(name)
    if config.resume is not None:
        expect_checkpoints(config.resume)


def choose_run_dir(config: TrainConfig) -> Path:
    """Return the run directory: --run-dir, the resumed one, or a new one under runs/."""
    if config.run_dir is not None:
        return Path(config.run_dir)
    if config.resume is not None:  # not "auto", which needs --run-dir
        return resumed_dir(config.resume)
    name = plain_name(config.data)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path(RUNS) / f"{stamp}-{name}-{secrets.token_hex(2)}"


def prepare(
    config: TrainConfig,
    directory: RunDirectory,
    workers: tuple[WorkerRequest, ...],
    console: Console,
    read: ReadData,
    choose: Choose,
) -> RunSetup:
    """Read the data with `read`; derive network and plan of a run that starts these `workers`.

    `choose` returns the settings and the data, with what is decided by the rows.
    UsageError or DataError if the directory, the data or the checkpoint to resume cannot be used,
    or if there is too little memory.
    """
    run_dir = directory.path
    resume_point = _choose_resume_point(config, run_dir, console)
    continues = resume_point is not None and resume_point.run_dir.resolve() == run_dir.resolve()
    if not continues and not config.overwrite:
        directory.expect_no_run()
    config, data = choose(config, read(config, console), console)
    return_freed_memory()  # of the file's contents, before the data are copied to shared memory
    start = initial_model(config)
    if config.label_transform == "auto" and start is None and data.encoding.kind in NUMBERS:
        transform = "log1p" if data.encoding.kind == "logs" else "none"
        config = replace(config, label_transform=transform)
    if isinstance(data, MappedData):
        config = replace(config, memory=data.memory, **SUITABLE)
    network = network_for(config, data) if start is None else network_of(config, start)
    if isinstance(data, LoadedData):
        for name, rows in data.sets.items():
            expect_ids(rows.inputs, network.backbone, f"the {name} rows")
    config = with_recipe(config, data, network)
    metric = metric_for(config, data, network) or "loss"
    chosen = {"metric": metric, "threshold": config.threshold or "none"}
    chosen["temperature"] = config.temperature
    identity = {**identity_of(config, data, network), **chosen}
    if resume_point:
        resume_point.check(identity, config, network, data.train_sizes.rows)
    plan = plan_for(config, data, network)
    setup = RunSetup(config, run_dir, data, network, start, plan, identity, resume_point, continues)
    where = "" if directory.temporary else f"; run directory {run_dir}"
    console.say(f"{setup.started().description}{where}")
    if config.precedes_refit:
        console.say("refit: a second run follows, on training and validation rows")
    elif config.refit:
        console.say(f"refit: training ends after {config.max_rows:,} rows")
    arrays = 2 + OPTIMIZERS[config.optimizer].slots  # with the best parameters
    size = FLOAT * network.parameters * arrays
    if config.checkpoint_seconds and checkpoints_kept(size) == 1:
        console.say(f"a checkpoint has up to {byte_size(size)}: only the last one is kept")
    needed = memory_for(config, data, network, plan, workers)
    expect_memory(needed, "this run")
    if config.memory is not None and isinstance(data, LoadedData):
        expect_within(config.memory, needed, data)
    return setup


def _choose_resume_point(
    config: TrainConfig, run_dir: Path, console: Console
) -> ResumePoint | None:
    """Find the checkpoint to resume from, if any; print which one, and why not a newer one."""
    if config.resume is None:
        return None
    resume_point = find_resume_point(config.resume, run_dir)
    if resume_point is None:
        console.say(f"{run_dir} contains no checkpoint: starting a new run")
        return None
    for problem in resume_point.unusable:
        console.say(f"skipping unusable checkpoint: {problem}")
    saved = resume_point.described.state
    console.say(
        f"resumed from {resume_point.checkpoint.path}: epoch {saved.epoch}, {saved.rows:,} rows "
        f"trained on in {saved.seconds:.1f} s"
    )
    return resume_point


def preparation(config: TrainConfig, start: Model | None) -> dict[str, Any]:
    """Return the settings of `data.load.prepare` for a run that begins with `start`."""
    shape = partial(shape_of, config.layers, config.input_shape)
    of_ids = config.layers.startswith("embed")
    if config.sequence and not (of_ids and len(config.text) == 1):
        raise UsageError(
            "--sequence needs one column, --text NAME, and --layers that begin with embed:WIDTH, "
            "as in embed:64,conv1d:128x5,relu,max"
        )
    named = [name for name in ("drop", "categorical", "numeric", "text") if getattr(config, name)]
    if config.layers and named and not config.sequence:
        raise UsageError(
            f"--{named[0]} has no effect on --layers over rows of numbers; remove it, or use "
            "--text NAME with --sequence words or --sequence characters"
        )
    scale = "none" if of_ids else config.scale
    return {
        "fractions": Fractions(config.test_fraction, config.validation_fraction),
        "loss": config.loss,
        "scale": scale if start is None else start.fitted,
        "linear": config.hidden == (),
        "label_transform": config.label_transform,
        "category_means": config.category_means,
        "number_values": config.number_values,
        "seed": config.seed,
        "class_weight": read_class_weights(config.class_weight),
        "shape_of_rows": shape if config.layers and not config.sequence else None,
    }


def load_data(config: TrainConfig, console: Console) -> LoadedData:
    """Read the files that `config` names; print notes about them. UsageError or DataError."""
    if config.data == ARRAYS:
        raise UsageError(
            "the run was trained on arrays in Python, which are not in its directory; give them "
            "to hogbatch.train(X, y, resume=RUN_DIR)"
        )
    progress = ReadProgress()
    console.busy("reading the data", progress)
    options = replace(ReadOptions.of(config), progress=progress)
    if not config.layers or config.sequence:  # otherwise only numbers are read
        columns = config.drop, config.categorical, config.numeric, config.text
        table = TableOptions(*columns, config.decimal, sequence=config.sequence)
        options = replace(options, table=table)
    cache = DataCache.of(config.data_cache, console.say)
    if (start := initial_model(config)) is not None:
        options = replace(options, shape=start.input_shape)
    settings = preparation(config, start) | {"options": options, "cache": cache}
    settings["files"] = config.held_out_files
    if (large := larger_than_memory(config, options)) is not None:
        settings |= {} if config.label_transform == "log1p" else {"label_transform": "none"}
        directory = cache.directory if cache else None
        data: LoadedData = load_mapped(config, large, directory, **settings)
    else:
        data = load(config.data, **settings)
    for note in data.notes:
        console.say(note)
    return data
