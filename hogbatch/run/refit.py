"""Runs with `refit`: a first one finds for how many rows to train, a second one has all rows."""

from collections.abc import Callable
from dataclasses import replace

from hogbatch.config.train import TrainConfig
from hogbatch.data.source import is_standard_input
from hogbatch.errors import UsageError
from hogbatch.run.results import Run


def execute_with_refit(config: TrainConfig, execute: Callable[[TrainConfig], Run]) -> Run:
    """Execute the run `config`; with `refit`, a first one before it, which finds `max_rows`.

    The second run begins anew with training and validation rows. It trains on as many rows as the
    kept model of the first run, and so makes about as many updates (Goodfellow, Bengio & Courville
    2016, Deep Learning, algorithm 7.2). In the run directory, it replaces the first run. If that is
    stopped, there is no second one. UsageError if the rows cannot be read again and divided anew.
    """
    if not config.refit:
        return execute(config)
    _expect_refittable(config)
    if config.precedes_refit:
        first = execute(config)
        if first.status == "stopped":
            return first
        rows = (first.summary["saved"] or first.summary)["rows"]
        directory = None if first.run_dir is None else str(first.run_dir)
        config = replace(config, max_rows=rows, run_dir=directory, resume=None, overwrite=True)
        config = replace(config, recipe=first.recipe)  # also if more rows suggest another one
    return execute(replace(config, validation_fraction=0.0))


def _expect_refittable(config: TrainConfig) -> None:
    """UsageError if the rows cannot be read again and divided anew, or a threshold be chosen."""
    if config.validation is not None:
        raise UsageError(
            "--refit trains on the rows of DATA, to which those of a validation file do not "
            "belong; append them to DATA and remove --validation, or remove --refit"
        )
    if any(name and is_standard_input(name) for name in (config.data, config.test)):
        raise UsageError(
            "--refit reads the data twice, but standard input can be read only once; give a file"
        )
    if config.threshold is not None:
        raise UsageError(
            "--refit leaves no validation rows on which --threshold could be chosen for the final "
            "model; remove one of them"
        )
