"""Ensembles (`members`): models that differ in their seeds, and whose predictions are averaged.

Lakshminarayanan, Pritzel & Blundell 2017, "Simple and Scalable Predictive Uncertainty Estimation
using Deep Ensembles". The run itself trains the first member; each other one is a run in its
directory, with checkpoints of its own.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from msgspec import structs

from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.data.batch import Examples
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
from hogbatch.run.planning import is_small
from hogbatch.run.platform import Platform
from hogbatch.run.results import Run
from hogbatch.run.setup import ReadData, RunSetup
from hogbatch.run.this_server import ThisServer
from hogbatch.views.console import figure, loss_of, readable

Others = Mapping[int, Run]  # the members from 2 on that have been trained, by number


def train_members(
    components: RunComponents,
    platform: Platform,
    first: Callable[[], Outcome],
    execute: Callable[[TrainConfig, Platform, ReadData], Run],
) -> tuple[Outcome, Others]:
    """Train all members with `first`, which trains the first one, and `execute`.

    On small data, they are trained side by side by the cores of this server, on other data one
    after another. A request to end the run ends all of them. Errors of any member are raised.
    """
    setup = components.setup
    if setup.config.members == 1:
        return first(), {}
    assert isinstance(platform, ThisServer), "settings of other platforms exclude members"
    interrupts = platform.callbacks.interrupts
    another = replace(platform, callbacks=Callbacks(interrupts=interrupts))
    sets: Mapping[SetName, Examples] = {  # the test rows are for the ensemble
        name: rows for name, rows in setup.loaded.sets.items() if name != "test"
    }
    data = replace(setup.loaded, sets=sets)

    def train(number: int) -> Run | None:
        if interrupts.count:
            return None
        return execute(_config_of(setup, number), another, lambda *_: data)

    numbers = range(2, setup.config.members + 1)
    small = is_small(setup.config, setup.plan, setup.network, data.train_sizes)
    beside = read_topology().threads - 1 if small else 0
    with ThreadPoolExecutor(max(1, beside)) as pool, interrupts.counted():
        try:
            pending = {number: pool.submit(train, number) for number in numbers if beside}
            outcome = first()
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


def _config_of(setup: RunSetup, number: int) -> TrainConfig:
    """The settings of the run that trains a member, which continues from its own checkpoint."""
    config, name, resume = setup.config, f"{MEMBERS}/{number}", None
    if setup.resume_point is not None:
        earlier = setup.resume_point.run_dir / name
        resume = str(earlier) if folder.paths(earlier / FOLDER) else None
    return replace(
        config,
        members=1,
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
    model = replace(model, others=tuple(run.model.tensors for run in others.values()))
    if config.threshold is not None and recorder.threshold is not None:
        rows = sets["validation"]
        scored = Scored(model.loss, rows.labels, model.plain.scores(rows.inputs))
        recorder.threshold = best_threshold(config.threshold, scored)
        model = replace(model, threshold=recorder.threshold or 0.5)
    metric = setup.plan.stopping.metric or model.loss.metrics[0]
    if kept is not None and kept.validation_loss is not None:
        loss, values = _measured(model, sets["validation"], metric)
        recorder.kept = replace(kept, validation_loss=loss, validation_values=values)
    if recorder.tested is not None:
        recorder.record(Tested(*_measured(model, sets["test"], metric)))
    return model


def _measured(model: Model, rows: Examples, metric: str) -> tuple[float | None, dict[str, float]]:
    """The loss and the metrics of an ensemble, first `metric`; none if a score is not finite."""
    try:
        measured = evaluate_rows(model, rows)
    except UsageError:
        return None, {}
    values = {name: float(value) for name, value in measured.items() if math.isfinite(value)}
    loss = values.pop("loss", None)
    return loss, {metric: values[metric], **values} if metric in values else values
