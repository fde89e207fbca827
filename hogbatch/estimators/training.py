"""Training runs of estimators: nothing of them stays but their result."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.data.source import ARRAYS
from hogbatch.errors import UsageError
from hogbatch.model.trained import Model
from hogbatch.run.arrays import GivenArrays
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.planning import network_for, plan_for, with_recipe
from hogbatch.run.refit import execute_with_refit
from hogbatch.run.results import Run
from hogbatch.run.small import default_members
from hogbatch.run.this_server import ThisServer
from hogbatch.run.training import execute
from hogbatch.store.model import SharedModel
from hogbatch.views.console import PlainConsole
from hogbatch.views.live.choose import console_in_python

NOT_HELD_OUT: Final = {
    "test_fraction": 0.0,
    "validation_fraction": 0.0,
    "patience": None,
    "refit": False,
}


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a run, from which another run can continue."""

    model: Model
    state: SharedModel  # parameters, optimizer slots and counters at the end
    # training loss at each evaluation after the first epoch; with `refit`, of the first run
    losses: list[float]
    validation_losses: list[float]  # at each of them; [] without validation rows
    epochs: float
    recipe: str = "auto"
    layers: str = ""


@dataclass(frozen=True)  # no slots: `run` calls that of the base class
class EstimatorCall(ThisServer):
    """The platform of `hogbatch.train`, which leaves signals to the caller.

    A run begins with the model `start`, if given, and appends its last model to `states`.
    """

    launch: bool = True
    callbacks: Callbacks = field(default_factory=lambda: Callbacks(interrupts=Interrupts(())))
    start: SharedModel | None = None
    states: list[SharedModel] = field(default_factory=list)

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        if self.start is not None:
            components.segments.start_from(self.start)
        outcome = super().run(components, workers)
        self.states.append(components.segments.model.copy())
        return outcome


def default_validation(given: GivenArrays, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which of the many rows `given` a run with these settings holds out by default, as settings.

    Those of the members if there are several. On sparse rows, the last model is often not the best
    where the learning rate does not fall: a first run then finds how long to train. A hashed output
    layer has too few rows of each class for that.
    """
    config = merge_sources({"data": ARRAYS, **settings})
    data = given.load(config, PlainConsole(quiet=True))
    network = network_for(config, data)
    config = with_recipe(config, data, network)
    plan = plan_for(config, data, network)
    if config.members != 1 and default_members(config, data, plan, network) > 1:
        return {}
    constant = plan.learning_rate.schedule == "constant" and plan.training.lsh is None
    if not (constant and data.train_sizes.sparse) or (config.members or 1) > 1:
        return NOT_HELD_OUT
    return {"refit": config.threshold is None}  # a threshold needs rows that the model has not seen


def train_rows(
    given: GivenArrays, settings: Mapping[str, Any], earlier: Trained | None = None
) -> Trained:
    """Train on the rows `given`, with `settings` as for `hogbatch.train`.

    With an `earlier` result, training continues from it.
    """
    config = merge_sources({"data": ARRAYS, **settings})
    if given.part or earlier:
        models = config.members or (1 if earlier is None else len(earlier.model.members))
        if models > 1:
            raise UsageError(f"partial_fit, warm_start: expected members=1; got {models}")
        config = replace(config, members=1)
    start, histories, states = None if earlier is None else earlier.state, [], list[SharedModel]()

    def once(config: TrainConfig) -> Run:
        console = console_in_python(quiet=config.quiet, plain=config.plain)
        platform = EstimatorCall(start=start, states=states)
        run = execute(config, platform, given.load, console, temporary=True)
        histories.append(run.summary["history"])
        return run

    run = execute_with_refit(config, once)
    epochs = [each for each in histories[0] if each["epochs"] >= 1]
    losses = [each["train_loss"] for each in epochs]
    validated = [loss for each in epochs if (loss := each["validation_loss"]) is not None]
    found = run.summary["epochs"], run.recipe, config.layers
    return Trained(run.model, states[-1], losses, validated, *found)
