"""Ensembles (`members`): models whose predictions are averaged, with different seeds.

Lakshminarayanan, Pritzel & Blundell 2017, "Simple and Scalable Predictive Uncertainty Estimation
using Deep Ensembles". They hold out different rows (`data.folds`). The run itself trains the first
member; each other one is a run in its directory, with checkpoints of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from msgspec import structs

from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.data.batch import Examples
from hogbatch.data.folds import joined, rows_of_member
from hogbatch.errors import UsageError
from hogbatch.events.event import Tested
from hogbatch.events.names import FOLDER, MEMBERS
from hogbatch.machine.linux import read_topology
from hogbatch.model.metrics import Scored, best_threshold
from hogbatch.model.prediction import evaluate_rows
from hogbatch.model.trained import Model
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.checkpoint import folder
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.platform import Platform
from hogbatch.run.results import Run
from hogbatch.run.setup import ReadData, RunSetup
from hogbatch.run.small import SMALL_MEMBER, is_small
from hogbatch.run.this_server import ThisServer
from hogbatch.views.console import figure, loss_of, readable

Others = Mapping[int, Run]  # the members from 2 on that have been trained, by number


def train_members(
    components: RunComponents,
    platform: Platform,
    first: Callable[[Platform], Outcome],
    execute: Callable[[TrainConfig, Platform, ReadData], Run],
) -> tuple[Outcome, Others]:
    """Train all members with `first`, which trains the first one, and `execute`.

    On small data, they are trained side by side by the cores of this server, on other data one
    after another. A request to end the run ends all of them. Errors of any member are raised.
    """
    setup = components.setup
    if (setup.config.members or 1) == 1:
        return first(platform), {}
    assert isinstance(platform, ThisServer), "settings of other platforms exclude members"
    interrupts = platform.callbacks.interrupts
    sizes = setup.data.train_sizes
    small = is_small(setup.config, setup.plan, setup.network, sizes, SMALL_MEMBER)
    platform = replace(platform, side_by_side=small)
    another = replace(platform, callbacks=Callbacks(interrupts=interrupts))

    def train(number: int) -> Run | None:
        if interrupts.count:
            return None
        data = setup.loaded.with_sets(_sets_of(setup, number))
        return execute(_config_of(setup, number), another, lambda *_: data)

    numbers = range(2, (setup.config.members or 1) + 1)
    beside = read_topology().threads - 1 if small else 0
    with ThreadPoolExecutor(max(1, beside)) as pool, interrupts.counted():
        try:
            pending = {number: pool.submit(train, number) for number in numbers if beside}
            outcome = first(platform)
            if outcome.finish.status == "failed":
                interrupts.request("the first member has failed")
                return outcome, {}
            pending = pending or {number: pool.submit(train, number) for number in numbers}
            others = _wait(pending, components)
        except BaseException:
            interrupts.request("another member has failed")
            raise
    if interrupts.count:
        finish = structs.replace(outcome.finish, status="stopped", reason=interrupts.reason)
        outcome = outcome._replace(finish=finish)
    return outcome, others


def _wait(pending: Mapping[int, Future[Run | None]], components: RunComponents) -> Others:
    """Wait for members by number; return those that have been trained, and print a line of each."""
    others = dict[int, Run]()
    for number, future in pending.items():
        components.console.busy(f"training member {number} of {len(pending) + 1}")
        run = future.result()
        if run is not None and run.trained is not None:
            others[number] = run
            components.console.say(_line(components, number, run))
    return others


def _have_folds(setup: RunSetup) -> bool:
    """Whether members hold out different rows; not if label vectors are weighted by such rows."""
    return setup.loaded.validation_drawn and not setup.has_label_vectors


def _sets_of(setup: RunSetup, number: int) -> Mapping[SetName, Examples]:
    """The rows of a member; the test rows are for the ensemble."""
    data = setup.loaded
    if _have_folds(setup):
        return rows_of_member(data, number, setup.config.seed)
    return {name: rows for name, rows in data.sets.items() if name != "test"}


def _config_of(setup: RunSetup, number: int) -> TrainConfig:
    """The settings of the run that trains a member, which continues from its own checkpoint."""
    config, name, resume = setup.config, f"{MEMBERS}/{number}", None
    if setup.resume_point is not None:
        earlier = setup.resume_point.run_dir / name
        resume = str(earlier) if folder.paths(earlier / FOLDER) else None
    return replace(
        config,
        members=1,
        hidden=setup.network.hidden,  # other rows might have other defaults
        label_vectors="off",  # those of the ensemble are added to its mean
        nearest_rows="off",
        seed=config.seed + number - 1,
        run_dir=str(setup.run_dir / name),
        resume=resume,
        overwrite=True,
        log=(),
        quiet=True,
    )


def _line(components: RunComponents, number: int, run: Run) -> str:
    config, loss = components.setup.config, loss_of(components.setup.started())
    parts = [f"member {number} of {config.members}: epoch {run.summary['epochs']:.2f}"]
    if run.validation_loss is not None:
        name, value = readable(loss, run.validation_loss)
        parts.append(f"validation {name} {figure(value)}")
    return ", ".join(parts)


def combine(model: Model, others: Others, components: RunComponents) -> Model:
    """The ensemble of the first member, `model`, and `others`.

    Its loss and metrics take the place of those of the first member in the recorder, and so does
    its decision threshold.
    """
    recorder, setup = components.recorder, components.setup
    sets, config = setup.loaded.sets, setup.config
    kept = recorder.kept
    losses = {1: None if kept is None else kept.validation_loss}
    losses |= {number: run.validation_loss for number, run in others.items()}
    recorder.members = [
        {"seed": config.seed + number - 1, "validation_loss": loss}
        for number, loss in losses.items()
    ]
    single = {1: model} | {number: run.model for number, run in others.items()}
    model = replace(model, others=tuple(run.model.tensors for run in others.values()))
    held_out = []
    if _have_folds(setup):
        held_out = [(one, _sets_of(setup, at)["validation"]) for at, one in single.items()]
    elif "validation" in sets:
        held_out = [(model, sets["validation"])]
    if config.threshold is not None and recorder.threshold is not None:
        scores = np.concatenate([one.plain.scores(rows.inputs) for one, rows in held_out])
        labels = joined([rows for _, rows in held_out]).labels
        scored = Scored(model.loss, labels, scores)
        recorder.threshold = best_threshold(config.threshold, scored)
        model = replace(model, threshold=recorder.threshold or 0.5)
        held_out = [(replace(one, threshold=model.threshold), rows) for one, rows in held_out]
    metric = setup.plan.stopping.metric or model.loss.metrics[0]
    if kept is not None and kept.validation_loss is not None:
        loss, values = _measured(held_out, metric)
        recorder.kept = structs.replace(kept, validation_loss=loss, validation_values=values)
    if recorder.tested is not None:
        recorder.record(Tested(*_measured([(model, sets["test"])], metric)))
    return model


def _measured(
    held_out: Sequence[tuple[Model, Examples]], metric: str
) -> tuple[float | None, dict[str, float]]:
    """Mean loss and metrics of models, each on its rows, first `metric`.

    They are weighted by these rows. A metric that is not defined on the rows of one is left out;
    nothing is known if a score is not finite.
    """
    try:
        measured = [evaluate_rows(*each) for each in held_out]
    except UsageError:
        return None, {}
    sizes = [rows.rows for _, rows in held_out]
    means = {
        name: float(np.average([each.get(name, math.nan) for each in measured], weights=sizes))
        for name in measured[0]
    }
    values = {name: value for name, value in means.items() if math.isfinite(value)}
    loss = values.pop("loss", None)
    return loss, {metric: values[metric], **values} if metric in values else values
