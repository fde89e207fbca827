"""The choice between labels and their logarithms (`--label-transform auto`), by short runs.

The error on training rows that are held out decides, in the unit of the labels.
"""

import math
from dataclasses import replace
from typing import Final

from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData
from hogbatch.run.results import Run
from hogbatch.run.short_runs import Execute, mean_errors, short
from hogbatch.views.console import Console, figure

MOST_ROWS: Final = 10_000  # in all folds
MIN_ROWS: Final = 500  # training rows; fewer cannot show which error is lower
MAX_RATIO: Final = 0.9  # of the errors, because chance decides, too


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
    better = after < MAX_RATIO * before
    console.say(
        f"label transform: {'log1p' if better else 'none'}; short runs have a validation rmse of "
        f"{figure(before)}, with log1p {figure(after)}"
    )
    return logs if better else plain


def _square(run: Run) -> float:
    return float(run.summary["validation"]["values"]["rmse"]) ** 2
