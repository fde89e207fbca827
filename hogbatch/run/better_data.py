"""The choice between two ways to encode the data, by short runs.

Logarithms of the labels (`--label-transform auto`): the error on training rows that are held out
decides, in the unit of the labels.

Features of the values of whole numbers: where hours, months or codes are numbers, a network learns
what is special about a value sooner from a feature of it. Where the labels are a smooth function of
the number, it overfits such features.
"""

import math
from dataclasses import replace
from typing import Final

from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData
from hogbatch.run.results import Run
from hogbatch.run.short_runs import Execute, mean_errors, short, validation_loss
from hogbatch.views.console import Console, figure

MOST_ROWS: Final = 10_000  # in all folds, to compare labels
MIN_ROWS: Final = 500  # training rows; fewer cannot show which error is lower
MAX_RMSE_RATIO: Final = 0.9  # of the errors; a smaller gain may be chance
MAX_LOSS_RATIO: Final = 0.995  # of the losses with features of values; likewise


def with_better_labels(
    config: TrainConfig, data: LoadedData, execute: Execute, console: Console
) -> LoadedData:
    """`data`, with logarithms of the labels if they are clearly better."""
    if data.in_logs is None:
        return data
    plain, logs = replace(data, in_logs=None), data.in_logs
    if data.train.rows < MIN_ROWS:
        return plain
    console.busy("comparing labels with their logarithms")
    settings = replace(short(config, plain), loss="squared", metric="rmse")
    cases = [(settings, plain), (settings, logs)]
    before, after = map(math.sqrt, mean_errors(cases, _square, execute, (0, 1), MOST_ROWS))
    better = after < MAX_RMSE_RATIO * before
    console.say(
        f"label transform: {'log1p' if better else 'none'}; short runs have a validation rmse of "
        f"{figure(before)}, with log1p {figure(after)}"
    )
    return logs if better else plain


def _square(run: Run) -> float:
    return float(run.summary["validation"]["values"]["rmse"]) ** 2


def with_better_features(
    config: TrainConfig, data: LoadedData, execute: Execute, console: Console
) -> tuple[TrainConfig, LoadedData]:
    """`data`, with features of values of numbers if they are better, and `config` with that."""
    if data.with_values is None:
        return config, data
    plain, values = replace(data, with_values=None), data.with_values
    console.busy("comparing numbers with features of their values")
    cases = [(short(config, each), each) for each in (plain, values)]
    before, after = mean_errors(cases, validation_loss, execute)
    better = after < before - (1 - MAX_LOSS_RATIO) * abs(before)  # losses may be negative
    chosen = "features" if better else "none"
    console.say(
        f"values of numbers: {chosen}; short runs have a validation loss of {figure(before)}, "
        f"with features {figure(after)}"
    )
    return replace(config, number_values=chosen), values if better else plain
