"""The choice of the recipe for tables with categories (`--recipe auto`), by short runs.

With the recipe "tabular", networks on sparse rows learn that values of categories multiply numbers,
for which "fast" is too slow, but are worse on other tables.
"""

import math
from dataclasses import replace
from typing import Final

from hogbatch.config.effect import changed
from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData
from hogbatch.run.defaults import SPARSE_HIDDEN, TABULAR_ROWS
from hogbatch.run.planning import network_for
from hogbatch.run.results import Run
from hogbatch.run.short_runs import Execute, mean_errors, short
from hogbatch.views.console import Console, figure

EPOCHS: Final = 40  # of a run with "tabular",
SHORT_EPOCHS: Final = 20  # and of a short one
COMPARED: Final = (0, 1)  # folds; the second one confirms that "tabular" is better
MOST_ROWS: Final = 20_000  # in all folds
MAX_RATIO: Final = 0.95  # of the losses, because chance decides, too
MAX_ROWS: Final = 50_000  # for more training rows, it was not measured
DECIDED: Final = (
    *("recipe", "optimizer", "lr", "schedule", "l2", "hidden", "init"),
    *("epochs", "max_rows", "max_seconds", "patience", "target_loss"),
)  # settings with which the user decides


def with_better_recipe(
    config: TrainConfig, data: LoadedData, execute: Execute, console: Console
) -> TrainConfig:
    """`config`, with the recipe "tabular" and more epochs if that is clearly better."""
    if not _may_be_better(config, data):
        return config
    console.busy("comparing two recipes")
    for fold in COMPARED:
        before, after = _losses(config, data, execute, fold)
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


def _losses(config: TrainConfig, data: LoadedData, execute: Execute, fold: int) -> list[float]:
    """The validation losses of short runs with "fast" and with "tabular", which hold out `fold`."""
    fast, tabular = (short(each, data) for each in (config, replace(config, recipe="tabular")))
    cases = [(fast, data), (replace(tabular, epochs=SHORT_EPOCHS), data)]
    return mean_errors(cases, _loss, execute, (fold,), MOST_ROWS)


def _loss(run: Run) -> float:
    return math.inf if run.validation_loss is None else run.validation_loss
