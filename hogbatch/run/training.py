"""The one file that wires everything: data, shared memory, coordinator, workers, model file."""

import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.checkpoint.rundir import CRASH, MODEL, RunDirectory
from hogbatch.checkpoint.snapshots import Snapshots
from hogbatch.config.train import TrainConfig, merge_sources, to_toml
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.health import largest_feature, skipped_warning
from hogbatch.coordinator.loop import Adapters, Loop
from hogbatch.coordinator.plan import Finish, Plan
from hogbatch.coordinator.state import Coordinator
from hogbatch.data.batch import Inputs
from hogbatch.data.cache import DataCache
from hogbatch.data.load import LoadedData, load
from hogbatch.data.raw import ReadOptions
from hogbatch.data.source import plain_name, shown
from hogbatch.errors import INTERRUPTED, HogbatchError, NoWorkers, SaveError, UsageError
from hogbatch.launch.base import Launcher
from hogbatch.launch.claims import pinning
from hogbatch.launch.find import check_workers, find_workers
from hogbatch.launch.local import LEAVE_WITHIN_S, LocalLauncher, log_name
from hogbatch.machine.cachedir import find_cache_root
from hogbatch.machine.limits import check_limits
from hogbatch.model.file import Frequencies, Model, save_model
from hogbatch.model.footprint import expect_room
from hogbatch.model.network import Network
from hogbatch.policy.base import BatchPolicy, Settings
from hogbatch.policy.choose import choose
from hogbatch.run.planning import memory_for, network_for, plan_for
from hogbatch.run.results import save_results
from hogbatch.run.resume import (
    ResumePoint,
    describe,
    expect_checkpoints,
    find,
    identity,
    origin_dir,
    settings_of,
)
from hogbatch.run.segments import Store
from hogbatch.store.average import MovingMean
from hogbatch.store.scan import first_not_finite
from hogbatch.store.segment_server import SegmentManifest, SegmentServer, describe_segments
from hogbatch.telemetry.crash import crash_report
from hogbatch.telemetry.journal import Journal, Refused
from hogbatch.telemetry.live import Live
from hogbatch.wire.address import Address, RunLock
from hogbatch.wire.endpoint import parse_listen
from hogbatch.wire.sockets import Router


@dataclass(frozen=True)  # no slots: they leave no room for the cached property
class Run:
    """A training run that has ended."""

    run_dir: Path
    trained: Model | None = field(repr=False)  # None if no row was trained on
    summary: dict[str, Any] = field(repr=False)  # as in summary.json
    exit_code: int

    @property
    def model(self) -> Model:
        """The kept model; UsageError if the run ended before any row was trained on."""
        if self.trained is None:
            raise UsageError(
                f"the run in {self.run_dir} ended before any row was trained on "
                f"({self.status}), so it has no model"
            )
        return self.trained

    @property
    def status(self) -> str:
        """One of "finished", "target", "time", "stopped", "failed"."""
        return str(self.summary["status"])

    @cached_property
    def test_loss(self) -> float | None:
        """Test loss of `model`, per row; None without a test set or a model."""
        test = self.summary["test"]
        return None if test is None else float(test["loss"])

    def save(self, path: str | Path) -> None:
        """Write the model file to `path`; SaveError if that fails, UsageError as for `model`."""
        save_model(self.model, path)


def train(data: str | Path, **settings: Any) -> Run:
    """Train on `data`, a file or the name of the bundled sample; returns when the run has ended.

    Settings are the flags of `hogbatch train` with underscores, e.g. ``hidden=(512, 512)``,
    ``workers="cpu:2,gpu:0"``, ``policy="adaptive"``, ``max_seconds=60``. UsageError and DataError
    for what cannot be used, NoWorkers when nobody trains, SaveError when the model cannot be
    written: its message says where the model is instead, and its `run` has the model. A run that is
    interrupted (Ctrl-C) returns with the status "stopped"; before any row was trained on, it has no
    model.
    """
    if not isinstance(data, str | Path):
        raise UsageError(f"expected the path of a file or the name of a sample; got {type(data)}")
    given = {"data": str(data), **settings}
    return execute(merge_sources(given, settings_of(given)), launch=True)


def execute(config: TrainConfig, *, launch: bool) -> Run:
    """Carry a run out; with `launch` it starts its workers, else it waits for them."""
    live = Live(config.quiet)
    check_limits()
    parse_listen(config.listen, config.insecure)
    if config.resume is not None:
        expect_checkpoints(config.resume)
    run_dir = _run_dir(config)
    requests = _workers(config, live) if launch else ()
    if note := find_cache_root().note:
        live.say(note)
    policy = choose(config.policy, Settings(config.alpha, config.beta))
    logs = [log_name(number) for number in range(len(requests))]
    with RunDirectory.hold(run_dir, logs) as directory, ExitStack() as undo:
        _say(live, directory.recover())
        origin = _origin(config, run_dir, live)
        goes_on = origin is not None and origin.run_dir.resolve() == run_dir.resolve()
        if not goes_on and not config.overwrite:
            directory.expect_no_run()
        loaded = _load(config, live)
        network = network_for(config, loaded)
        who = identity(config, loaded, network)
        if origin:
            origin.check(who)
        live.say(_describe(config, loaded, network, run_dir))
        plan = plan_for(config, loaded, network, run_dir.name)
        expect_room(memory_for(config, loaded, network, plan, requests), "this run")
        undo.callback((store := Store(config, loaded, network, run_dir)).close)
        loaded = store.in_place_of(loaded)
        # so that it can be repeated
        text = to_toml(replace(config, run_dir=None, resume=None, overwrite=False))
        undo.callback(lambda: _say(live, directory.end()))
        directory.begin(text, goes_on)
        journal = Journal(run_dir, live, store.model.params, goes_on)
        state = _begin(origin, plan, policy, store, journal)
        mean = MovingMean(store.model)
        about = partial(describe, who, text, journal, store.quarantined)
        into = directory.checkpoints
        snapshots = Snapshots(
            store.model, network, into, about, store.begin, mean.reset, directory.saving
        )
        sampled = state.plan.ending.average and not config.deterministic
        with (
            _planes(config, run_dir, store, directory.run_lock) as (router, segment_server),
            _launched(requests, run_dir, config.pin) as launcher,
            mean.sampling() if sampled else nullcontext(),
        ):
            if not launch:
                live.say(f"waiting for workers: hogbatch worker cpu {run_dir}")
            adapters = Adapters(
                end=router,
                segment_server=segment_server,
                fences=store.fences,
                children=launcher,
                snapshots=snapshots,
                shuffle=store.shuffle,
                quarantine=store.quarantine,
                record=partial(_record, journal, loaded.train.inputs),
                report=journal.report,
                show_mean=mean.show,
                keep=journal.keep,
            )
            loop = Loop(state, adapters)
            with crash_report(run_dir / CRASH, text, loop.heard):
                finish, standing = loop.run()
            segment_server.close()  # who is still on the way in is turned away, not waited for
        if config.checkpoint_seconds and standing.rows and not finish.diverged:
            _save_last(state, snapshots, live)
        model = _model(config, loaded, network, journal.params) if standing.rows else None
        refused = Refused(router.refused, router.rejected + segment_server.refused)
        summary = journal.summary(finish.status, finish.reason, standing, refused)
        journal.log.close()
        run = Run(run_dir, model, summary, _exit_code(finish))
        return _conclude(run, finish, journal, directory)


def _say(live: Live, note: str) -> None:
    if note:
        live.say(note)


def _load(config: TrainConfig, live: Live) -> LoadedData:
    loaded = load(
        config.data,
        options=ReadOptions(
            label=config.label,
            index_base=None if config.index_base == "auto" else int(config.index_base),
            bad_lines=config.bad_lines,
            header=config.header,
            declared=config.features,
        ),
        test=config.test,
        test_fraction=config.test_fraction,
        loss=config.loss,
        scale=config.scale,
        seed=config.seed,
        cache=DataCache.of(config.data_cache, live.say),
    )
    for note in loaded.notes:
        live.say(note)
    return loaded


def _origin(config: TrainConfig, run_dir: Path, live: Live) -> ResumePoint | None:
    """The checkpoint to go on from; says which, and why no newer one."""
    if config.resume is None:
        return None
    origin = find(config.resume, origin_dir(config.resume, run_dir) or run_dir)
    if origin is None:
        live.say(f"{run_dir} has no checkpoint: a new run begins")
        return None
    for sentence in origin.bad:
        live.say(f"passed over: {sentence}")
    saved = origin.saved
    live.say(
        f"resumed from {origin.checkpoint.path}: epoch {saved.epoch}, {saved.rows:,} rows trained "
        f"on in {saved.seconds:.1f} s"
    )
    return origin


def _begin(
    origin: ResumePoint | None, plan: Plan, policy: BatchPolicy, store: Store, journal: Journal
) -> Coordinator:
    """A coordinator at the start of a run, or where `origin` has left off."""
    if origin is None:
        return Coordinator(plan, policy)
    arrays, saved = origin.checkpoint.arrays, origin.saved
    store.resume(arrays)
    journal.resume(origin.history, origin.kept, arrays.get("kept"))
    arrays.clear()  # as much memory as the model and its optimizer's state take
    todo = [list(span.rows) for span in saved.todo]
    about = {"checkpoint": str(origin.checkpoint.path), "epoch": saved.epoch, "todo": todo}
    journal.record("resumed", {**about, "rows": saved.rows, "seconds": saved.seconds})
    return Coordinator.resumed(plan, policy, saved)


def _record(journal: Journal, inputs: Inputs, event: str, fields: Mapping[str, Any]) -> None:
    """Record an event; of rows that are often skipped with what is special about one of them."""
    if event == "rows_often_skipped":
        largest = (
            largest_feature(inputs, fields["skipped_row"] - 1) if fields["skipped_row"] else 0.0
        )
        fields = {**fields, "warning": skipped_warning(**fields, largest=largest)}
    journal.record(event, fields)


def _save_last(state: Coordinator, snapshots: Snapshots, live: Live) -> None:
    """Write a checkpoint of a run that has ended, from which it can be prolonged."""
    draft = snapshots.draft(state.saved(time.monotonic()))
    if not snapshots.copy(draft) and (failure := draft.write()):
        live.say(failure)


def _run_dir(config: TrainConfig) -> Path:
    if config.run_dir is not None:
        return Path(config.run_dir)
    if config.resume is not None and (resumed := origin_dir(config.resume, None)):
        return resumed
    name = plain_name(config.data)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{stamp}-{name}-{secrets.token_hex(2)}"


def _workers(config: TrainConfig, live: Live) -> tuple[WorkerRequest, ...]:
    """The workers to start; says in one line what was found."""
    found = find_workers() if config.workers == "auto" else check_workers(config.workers)
    live.say(found.line)
    return found.workers


def _describe(config: TrainConfig, loaded: LoadedData, network: Network, run_dir: Path) -> str:
    """One line about data and network."""
    form = "sparse" if loaded.train.sparse else "dense"
    testing = f"{loaded.test.rows:,} for test" if loaded.test is not None else "no test set"
    return (
        f"{shown(config.data)}: {loaded.train.rows:,} rows to train, {testing}, {form}; "
        f"network {network.widths}, loss {network.loss}; run directory {run_dir}"
    )


@contextmanager
def _planes(
    config: TrainConfig, run_dir: Path, store: Store, run_lock: RunLock
) -> Iterator[tuple[Router, SegmentServer]]:
    """Open control and data plane, and let workers find them."""
    with ExitStack() as undo:
        router = Router(run_dir, listen=config.listen, insecure=config.insecure)
        undo.callback(router.close)
        manifest = SegmentManifest(
            run_dir.name, store.fingerprint, store.features, describe_segments(store.segments)
        )
        segment_server = SegmentServer.open(run_dir, manifest, store.segments)
        undo.callback(segment_server.close)
        run_lock.publish(
            Address(
                run=run_dir.name,
                pid=os.getpid(),
                control=router.address,
                store=segment_server.address,
                since=datetime.now().isoformat(timespec="seconds"),
                keys=router.keys,
            )
        )
        yield router, segment_server


@contextmanager
def _launched(requests: tuple[WorkerRequest, ...], run_dir: Path, pin: bool) -> Iterator[Launcher]:
    """Start the workers asked for; none of them runs afterwards."""
    launcher: Launcher = LocalLauncher()
    with pinning(requests) if pin else nullcontext([()] * len(requests)) as cores:
        try:
            for request, own in zip(requests, cores, strict=True):
                launcher.start(request, run_dir, own)
            yield launcher
        except BaseException:
            launcher.stop(patience_s=0.0)  # nobody has told them to stop
            raise
        launcher.stop(LEAVE_WITHIN_S)


def _model(
    config: TrainConfig, loaded: LoadedData, network: Network, params: NDArray[np.float32]
) -> Model:
    columns = loaded.columns
    about = {"hogbatch": version("hogbatch"), "data": config.data, "label": columns.label or ""}
    if columns.position is not None:
        about["label_column"] = str(columns.position)
    if network.layers[-1].output_major:
        about["lsh"] = config.lsh
    frequencies = None
    if loaded.encoding.kind == "multilabel":
        labels, rows = loaded.train.labels.indices, loaded.train.rows
        frequencies = Frequencies(rows, np.bincount(labels, minlength=network.outputs))
    return Model(
        network=network,
        tensors=network.from_stored(params),
        encoding=loaded.encoding,
        scaler=loaded.scaler,
        index_base=loaded.index_base,
        about=about,
        frequencies=frequencies,
        feature_names=columns.names or None,
    )


def _exit_code(finish: Finish) -> int:
    return {"stopped": INTERRUPTED, "failed": NoWorkers.exit_code}.get(finish.status, 0)


def _failure(finish: Finish, where: str) -> HogbatchError:
    """The error for a run that has failed; `where` its model is."""
    kind = UsageError if finish.diverged or finish.by_policy else NoWorkers
    return kind(f"{finish.reason}; {where}")


def _conclude(run: Run, finish: Finish, journal: Journal, directory: RunDirectory) -> Run:
    """Write model and summary, and say how it went.

    NoWorkers if nobody is left, UsageError if there is no model or it is of no use, after all is
    written; SaveError, with the run, if it cannot be.
    """
    failed = finish.status == "failed"
    model = None if failed and journal.kept_params is None else run.trained
    finite = model is None or first_not_finite(journal.params) is None
    try:
        save_results(directory, model if finite else None, run.summary)
    except SaveError as error:
        if failed and model is None:
            raise _failure(finish, f"no model was saved; {error}") from None
        unsaved = SaveError(f"{finish.reason}; {error}" if failed else str(error))
        unsaved.run = run
        raise unsaved from None
    where = f"the model is in {run.run_dir / MODEL}" if model and finite else "no model was saved"
    if failed:
        raise _failure(finish, where)
    if not finite:
        raise UsageError(f"training has diverged: the model is not finite; lower --lr; {where}")
    before = " before any row was trained on" if model is None else ""
    if before and finish.status != "stopped":
        raise UsageError(f"the run ended ({run.status}){before}; {where}; let it run longer")
    test = run.summary["test"]
    result = f"test loss {test['loss']:.4f}, {test['metric']} {test['value']:.4f}; " if test else ""
    why = f" ({finish.reason})" if finish.status == "finished" and finish.reason else ""
    journal.live.say(f"{run.status}{before}{why}: {result}{where}")
    if finish.status == "stopped":
        with suppress(OSError):  # a terminal that is gone
            print(f"hogbatch: interrupted{before}; {where}", file=sys.stderr)
    return run
