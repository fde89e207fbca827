"""Training runs of estimators: nothing of them stays but their result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.data.encode import Encoding
from hogbatch.data.load import LoadedData, prepare
from hogbatch.data.raw import RawSet
from hogbatch.data.source import ARRAYS
from hogbatch.model.trained import Model
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.checkpoint.snapshots import ModelCopy
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.this_server import ThisServer
from hogbatch.run.training import execute
from hogbatch.views.console import Console
from hogbatch.views.live.choose import console_in_python


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a run, from which another run can continue."""

    model: Model
    state: ModelCopy  # parameters, optimizer slots and counters at the end
    losses: list[float]  # training loss at each evaluation
    epochs: float


@dataclass(frozen=True)  # no slots: `run` calls that of the base class
class EstimatorCall(ThisServer):
    """The platform of `hogbatch.train`, which leaves signals to the caller.

    A run begins with the model `start`, if given, and appends its last model to `states`.
    """

    launch: bool = True
    callbacks: Callbacks = field(default_factory=lambda: Callbacks(interrupts=Interrupts(())))
    start: ModelCopy | None = None
    states: list[ModelCopy] = field(default_factory=list)

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        if self.start is not None:
            components.segments.start_from(self.start)
        outcome = super().run(components, workers)
        self.states.append(ModelCopy.of(components.segments.model))
        return outcome


def train_rows(
    raw: RawSet,
    settings: Mapping[str, Any],
    *,
    encoding: Encoding | None = None,
    earlier: Trained | None = None,
    all_rows: bool = True,
) -> Trained:
    """Train on the rows `raw`, with `settings` as for `hogbatch.train`.

    `encoding` is that of the labels; None: chosen from them. With an `earlier` result, training
    continues from it, with the same encoding, scaling and network. Without `all_rows`, later calls
    train on other rows, in which features may vary that are constant in these.
    """

    def read(config: TrainConfig, console: Console) -> LoadedData:
        scale = config.scale if earlier is None else earlier.model.scaler or "none"
        return prepare(
            raw,
            None,
            test_fraction=config.test_fraction,
            loss=config.loss,
            scale=scale,
            seed=config.seed,
            encoding=encoding if earlier is None else earlier.model.encoding,
            drop_constant=all_rows,
        )

    config = merge_sources({"data": ARRAYS, **settings})
    platform = EstimatorCall(start=None if earlier is None else earlier.state)
    console = console_in_python(quiet=config.quiet, plain=config.plain)
    run = execute(config, platform, read, console, temporary=True)
    losses = [each["train_loss"] for each in run.summary["history"]]
    return Trained(run.model, platform.states[-1], losses, run.summary["epochs"])
