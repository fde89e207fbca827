"""The choice of recipe (`--recipe auto`) and epochs by short runs.

With the recipe "tabular", networks on sparse rows learn that values of categories multiply numbers,
for which "fast" is too slow, but are worse on other tables. On dense rows, noise decides after how
many epochs such a network is best: from 1 to more than 20.
"""

import math
from dataclasses import replace
from typing import Final

from hogbatch.config.effect import changed
from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData
from hogbatch.run.defaults import SMALL_ROWS, SPARSE_HIDDEN, TABULAR_ROWS
from hogbatch.run.planning import network_for, with_recipe
from hogbatch.run.results import Run
from hogbatch.run.short_runs import MOST_ROWS, Execute, mean_errors, short, validation_loss
from hogbatch.views.console import Console, figure

EPOCHS: Final = 40  # of a run with "tabular",
SHORT_EPOCHS: Final = 20  # and of a short one
MAX_RATIO: Final = 0.95  # of the losses, because chance decides, too
MAX_ROWS: Final = 50_000  # for more training rows, "tabular" was no better
GROWTH: Final = 0.25  # the best epochs grow by this power of the rows, fitted to 150,000 and more
TOLERANCE: Final = 0.005  # of the loss: a run that ends there gains more by its schedule
ENDS: Final = ("init", "epochs", "max_rows", "max_seconds", "patience", "target_loss", "schedule")
DECIDED: Final = (*ENDS, "recipe", "optimizer", "lr", "l2", "hidden")  # by the user


def with_better_recipe(
    config: TrainConfig, data: LoadedData, execute: Execute, console: Console
) -> TrainConfig:
    """`config`, with the recipe "tabular" and more epochs if that is clearly better."""
    if not _may_be_better(config, data):
        return config
    console.busy("comparing two recipes")
    fast, tabular = (short(each, data) for each in (config, replace(config, recipe="tabular")))
    cases = [(fast, data), (replace(tabular, epochs=SHORT_EPOCHS), data)]
    for fold in (0, 1):  # the second one confirms that it is better
        before, after = mean_errors(cases, validation_loss, execute, (fold,))
        if not (better := after < MAX_RATIO * before):
            break
    console.say(
        f"recipe: {f'tabular, {EPOCHS} epochs' if better else 'fast'}; short runs have a "
        f"validation loss of {figure(before)}, with tabular {figure(after)}"
    )
    return replace(config, recipe="tabular", epochs=EPOCHS) if better else config


def _may_be_better(config: TrainConfig, data: LoadedData) -> bool:
    """Whether there are short runs: for the default network on rows of categories and numbers."""
    train, table = data.train_sizes, data.table
    if changed(config, DECIDED) or table is None or table.texts:
        return False
    if not train.sparse or not TABULAR_ROWS <= train.rows <= MAX_ROWS:
        return False
    return network_for(config, data).hidden == SPARSE_HIDDEN  # one class or number per row


def with_epochs(
    config: TrainConfig, data: LoadedData, execute: Execute, console: Console
) -> TrainConfig:
    """`config`, for many dense rows with the number of epochs that short runs need."""
    train = data.train_sizes
    if train.sparse or train.rows < SMALL_ROWS or changed(config, (*ENDS, "layers")):
        return config
    if with_recipe(config, data, network_for(config, data)).recipe != "tabular":
        return config
    console.busy("finding the number of epochs")
    settings = replace(short(config, data), epochs=SHORT_EPOCHS)
    (best,) = mean_errors([(settings, data)], _epochs, execute)
    growth = max(1.0, train.rows / MOST_ROWS) ** GROWTH  # more rows are overfitted later
    epochs = round(min(max(1.0, best) * growth, SHORT_EPOCHS))
    console.say(f"epochs: {epochs}, by the validation losses of short runs")
    return replace(config, epochs=epochs)


def _epochs(run: Run) -> float:
    """The first ones after which the validation loss was at most TOLERANCE above the lowest one."""
    history = run.summary["history"]
    found = (each["validation_loss"] for each in history)
    losses = [math.inf if loss is None else loss for loss in found]
    enough = min(losses) + TOLERANCE * abs(min(losses))  # losses may be negative
    return float(next(history[n]["epochs"] for n, loss in enumerate(losses) if loss <= enough))
