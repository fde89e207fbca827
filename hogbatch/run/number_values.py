"""The choice whether values of whole numbers have features of their own, by short runs.

Where hours, months or codes are numbers, a network learns what is special about a value sooner from
a feature of it. Where the labels are a smooth function of the number, it overfits such features.
"""

from dataclasses import replace
from typing import Final

from hogbatch.config.train import TrainConfig
from hogbatch.data.load import LoadedData
from hogbatch.run.short_runs import Execute, mean_errors, short, validation_loss
from hogbatch.views.console import Console, figure

MAX_RATIO: Final = 0.995  # of the losses, because chance decides, too


def with_better_features(
    config: TrainConfig, data: LoadedData, execute: Execute, console: Console
) -> LoadedData:
    """`data`, with features of values of numbers if they are better."""
    if data.with_values is None:
        return data
    plain, values = replace(data, with_values=None), data.with_values
    console.busy("comparing numbers with features of their values")
    cases = [(short(config, each), each) for each in (plain, values)]
    before, after = mean_errors(cases, validation_loss, execute)
    better = after < before - (1 - MAX_RATIO) * abs(before)  # losses may be negative
    console.say(
        f"values of numbers: {'features' if better else 'none'}; short runs have a validation loss "
        f"of {figure(before)}, with features {figure(after)}"
    )
    return values if better else plain
