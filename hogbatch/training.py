"""The one file that wires everything: data, shared memory, coordinator, workers, model file."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.checkpoint.model import Frequencies, Model, save_model
from hogbatch.config import TrainConfig, merge_sources, to_toml
from hogbatch.coordinator.loop import Loop, Surroundings
from hogbatch.coordinator.plan import Finish
from hogbatch.coordinator.state import Coordinator
from hogbatch.data.cache import DataCache
from hogbatch.data.load import Loaded, load
from hogbatch.data.order import epoch_order
from hogbatch.errors import INTERRUPTED, NoWorkers, UsageError
from hogbatch.launch.base import Launcher
from hogbatch.launch.claims import pinning
from hogbatch.launch.find import check_workers, find_workers
from hogbatch.launch.local import LEAVE_WITHIN_S, LocalLauncher
from hogbatch.models import Network
from hogbatch.optim import OPTIMIZERS
from hogbatch.planner.settle import network_for, plan_for
from hogbatch.policy.base import Settings
from hogbatch.policy.choose import choose
from hogbatch.store import dataset
from hogbatch.store.average import MovingMean
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.handover import Catalog, Handover, records
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.telemetry.journal import Journal
from hogbatch.telemetry.live import Live
from hogbatch.telemetry.sinks import write_summary
from hogbatch.values import WorkerRequest
from hogbatch.wire.address import Address, Tenancy
from hogbatch.wire.sockets import Router


@dataclass(frozen=True)  # no slots: they leave no room for the cached property
class Run:
    """A training run that has ended."""

    run_dir: Path
    model: Model = field(repr=False)
    summary: dict[str, Any] = field(repr=False)  # as in summary.json
    exit_code: int

    @property
    def status(self) -> str:
        """One of "finished", "target", "time", "stopped", "failed"."""
        return str(self.summary["status"])

    @cached_property
    def test_loss(self) -> float | None:
        """Test loss of `model`, per row; None without a test set."""
        test = self.summary["test"]
        return None if test is None else float(test["loss"])

    def save(self, path: str | Path) -> None:
        """Write the model file to `path`; SaveError if that fails."""
        save_model(self.model, path)


def train(data: str | Path, **settings: Any) -> Run:
    """Train on `data`, a file or the name of the bundled sample; returns when the run has ended.

    Settings are the flags of `hogbatch train` with underscores, e.g. ``hidden=(512, 512)``,
    ``workers="cpu:2,gpu:0"``, ``policy="adaptive"``, ``max_seconds=60``. UsageError and DataError
    for what cannot be used, NoWorkers when nobody trains, SaveError when the model cannot be
    written.
    """
    if not isinstance(data, str | Path):
        raise UsageError(f"expected the path of a file or the name of a sample; got {type(data)}")
    return execute(merge_sources({"data": str(data), **settings}), launch=True)


def execute(config: TrainConfig, *, launch: bool) -> Run:
    """Carry a run out; with `launch` it starts its workers, else it waits for them."""
    live = Live(config.quiet)
    run_dir = _run_dir(config)
    requests = _workers(config, live) if launch else ()
    policy = choose(config.policy, Settings(config.alpha, config.beta))
    with _tenancy(run_dir) as tenancy, ExitStack() as undo:
        loaded = _load(config, live)
        network = network_for(config, loaded)
        live.say(_describe(config, loaded, network, run_dir))
        undo.callback((store := Store(config, loaded, network)).close)
        loaded = store.in_place_of(loaded)
        _clear(run_dir)
        text = to_toml(replace(config, run_dir=None))  # or a repeat would overwrite this run
        (run_dir / "config.toml").write_text(text, encoding="utf-8")
        state = Coordinator(plan_for(config, loaded, network, run_dir.name), policy)
        journal = Journal(run_dir, live, store.model.params)
        mean = MovingMean(store.model)
        sampled = state.plan.ending.average and not config.deterministic
        with (
            _planes(run_dir, store, tenancy) as (router, handover),
            _launched(requests, run_dir, config.pin) as launcher,
            mean.sampling() if sampled else nullcontext(),
        ):
            if not launch:
                live.say(f"waiting for workers: hogbatch worker cpu {run_dir}")
            around = Surroundings(
                end=router,
                handover=handover,
                fences=store.fences,
                children=launcher,
                shuffle=store.shuffle,
                record=journal.record,
                report=journal.report,
                show_mean=mean.show,
                keep=journal.keep,
            )
            finish, standing = Loop(state, around).run()
            handover.close()  # who is still on the way in is turned away, not waited for
        model = _model(config, loaded, network, journal.params)
        summary = journal.summary(finish.status, finish.reason, standing, router.refused)
        journal.log.close()
        return _conclude(Run(run_dir, model, summary, _exit_code(finish)), finish, journal)


def _load(config: TrainConfig, live: Live) -> Loaded:
    return load(
        config.data,
        test=config.test,
        test_fraction=config.test_fraction,
        label=config.label,
        index_base=None if config.index_base == "auto" else int(config.index_base),
        loss=config.loss,
        standardize=config.standardize,
        cache=DataCache.of(config.data_cache, live.say),
    )


class Store:
    """The two segments of a run, filled and ready to be handed over."""

    def __init__(self, config: TrainConfig, loaded: Loaded, network: Network) -> None:
        train, test = loaded.train, loaded.test
        self.data = Segment.create("data", arrange(dataset.fields(train, test)))
        dataset.fill(self.data, train, test)
        self.data.seal_data()
        fields = {
            **SharedModel.fields(network.parameters, OPTIMIZERS[config.optimizer].slots),
            **EpochOrders.fields(train.rows),
            **Fences.fields(),
        }
        self.shared = Segment.create("shared", arrange(fields))
        self.model = SharedModel.of(self.shared)
        self.fences = Fences.of(self.shared)
        self._orders = EpochOrders.attach(self.shared)
        self._seed = config.seed
        self.features = train.features
        self.fingerprint = loaded.fingerprint
        network.initialise(self.model.params, config.seed, train.mean_square)

    def close(self) -> None:
        """Give the memory back; views of it live on as long as someone holds them."""
        self.data.close()
        self.shared.close()

    @property
    def segments(self) -> dict[str, Segment]:
        """By the names that workers know."""
        return {"data": self.data, "shared": self.shared}

    def in_place_of(self, loaded: Loaded) -> Loaded:
        """`loaded` with its sets as views of shared memory, so that they are there only once."""
        features = self.features
        train, test = dataset.train_of(self.data, features), dataset.test_of(self.data, features)
        return replace(loaded, train=train, test=test)

    def shuffle(self, epoch: int) -> None:
        """Write the order of `epoch`."""
        order = self._orders.of(epoch)
        order[:] = epoch_order(len(order), self._seed, epoch)


def _run_dir(config: TrainConfig) -> Path:
    if config.run_dir is not None:
        return Path(config.run_dir)
    name = Path(config.data).name.split(".")[0] or "run"
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{stamp}-{name}-{secrets.token_hex(2)}"


def _clear(run_dir: Path) -> None:
    """Remove what an earlier run has left here: it would pass for this one's."""
    for stale in ("model.safetensors", "summary.json", "events.jsonl", "worker-*.log"):
        for path in run_dir.glob(stale):
            path.unlink()


@contextmanager
def _tenancy(run_dir: Path) -> Iterator[Tenancy]:
    tenancy = Tenancy.take(run_dir)
    try:
        yield tenancy
    except BaseException:
        tenancy.close()
        with suppress(OSError):  # a directory made for nothing: only our own empty file is in it
            if [entry.name for entry in run_dir.iterdir()] == ["coordinator.json"]:
                (run_dir / "coordinator.json").unlink()
                run_dir.rmdir()
        raise
    tenancy.close()


def _workers(config: TrainConfig, live: Live) -> tuple[WorkerRequest, ...]:
    """The workers to start; says in one line what was found."""
    found = find_workers() if config.workers == "auto" else check_workers(config.workers)
    live.say(found.line)
    return found.workers


def _describe(config: TrainConfig, loaded: Loaded, network: Network, run_dir: Path) -> str:
    """One line about data and network."""
    form = "sparse" if loaded.train.sparse else "dense"
    testing = f"{loaded.test.rows:,} for test" if loaded.test is not None else "no test set"
    widths = "-".join(str(layer.fan_in) for layer in network.layers) + f"-{network.outputs}"
    return (
        f"{config.data}: {loaded.train.rows:,} rows to train, {testing}, {form}; "
        f"network {widths}, loss {network.loss}; run directory {run_dir}"
    )


@contextmanager
def _planes(run_dir: Path, store: Store, tenancy: Tenancy) -> Iterator[tuple[Router, Handover]]:
    """Open control and data plane, and let workers find them."""
    with ExitStack() as undo:
        router = Router(run_dir)
        undo.callback(router.close)
        catalog = Catalog(run_dir.name, store.fingerprint, store.features, records(store.segments))
        handover = Handover.open(run_dir, catalog, store.segments)
        undo.callback(handover.close)
        tenancy.publish(
            Address(
                run=run_dir.name,
                pid=os.getpid(),
                control=router.address,
                store=handover.address,
                since=datetime.now().isoformat(timespec="seconds"),
            )
        )
        yield router, handover


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
    config: TrainConfig, loaded: Loaded, network: Network, params: NDArray[np.float32]
) -> Model:
    about = {"hogbatch": version("hogbatch"), "data": config.data, "label": config.label or ""}
    if network.layers[-1].by_neuron:
        about["lsh"] = config.lsh
    frequencies = None
    if loaded.encoding.kind == "multilabel":
        labels, rows = loaded.train.labels.indices, loaded.train.rows
        frequencies = Frequencies(rows, np.bincount(labels, minlength=network.outputs))
    return Model(
        network=network,
        tensors=network.from_stored(params),
        encoding=loaded.encoding,
        standardizer=loaded.standardizer,
        index_base=loaded.index_base,
        about=about,
        frequencies=frequencies,
    )


def _exit_code(finish: Finish) -> int:
    return {"stopped": INTERRUPTED, "failed": NoWorkers.exit_code}.get(finish.status, 0)


def _conclude(run: Run, finish: Finish, journal: Journal) -> Run:
    """Write model and summary, and say how it went.

    NoWorkers if nobody is left, UsageError if the model is of no use, after both are written.
    """
    path = run.run_dir / "model.safetensors"
    finite = all(np.isfinite(tensor).all() for tensor in run.model.tensors.values())
    saved = finite and (finish.status != "failed" or journal.kept_something)
    if saved:
        run.save(path)
    where = f"the model is in {path}" if saved else "no model was saved"
    write_summary(run.run_dir / "summary.json", run.summary)
    if finish.status == "failed":
        raise (UsageError if finish.diverged else NoWorkers)(f"{finish.reason}; {where}")
    if not finite:
        raise UsageError(f"training has diverged: the model is not finite; lower --lr; {where}")
    test = run.summary["test"]
    result = f"test loss {test['loss']:.4f}, {test['metric']} {test['value']:.4f}; " if test else ""
    journal.live.say(f"{run.status}: {result}{where}")
    if finish.status == "stopped":
        print(f"hogbatch: interrupted; {where}", file=sys.stderr)
    return run
