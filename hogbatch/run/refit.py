"""Runs with `refit`: a first one finds for how many rows to train, a second one has all rows."""

from collections.abc import Callable
from dataclasses import replace

from hogbatch.config.train import TrainConfig
from hogbatch.data.source import is_standard_input
from hogbatch.errors import UsageError
from hogbatch.run.results import Run


def execute_with_refit(config: TrainConfig, execute: Callable[[TrainConfig], Run]) -> Run:
    """Execute the run `config`; with `refit`, a first one before it, which finds `max_rows`.

    The second run starts from initial weights and has training and validation rows. It trains on as
    many rows as the kept model of the first run, and so makes about as many updates (Goodfellow,
    Bengio & Courville 2016, Deep Learning, algorithm 7.2). It replaces the first run in the run
    directory. There is no second run if the first one is stopped. UsageError if the rows cannot be
    read and split twice.
    """
    if not config.refit:
        return execute(config)
    _expect_refittable(config)
    if config.precedes_refit:
        first = execute(config)
        if first.status == "stopped":
            return first
        rows = max(1, (first.summary["saved"] or first.summary)["rows"])  # 0: the initial model
        directory = None if first.run_dir is None else str(first.run_dir)
        config = replace(config, max_rows=rows, run_dir=directory, resume=None, overwrite=True)
        # More rows might have other defaults.
        same = "recipe", "hidden", "label_transform", "number_values"
        config = replace(config, **{name: getattr(first, name) for name in same})
        if config.temperature == "auto":
            config = replace(config, temperature=f"{first.summary['temperature'] or 1:.6f}")
        if chosen := first.summary["label_vectors"]:
            names = "weight", "exponent", "temperature"
            weight = ":".join(f"{chosen[name]:.6f}" for name in names)
            rows = f"{chosen['rows']:.6f}" if chosen["rows"] else "off"
            config = replace(config, label_vectors=weight, nearest_rows=rows)
    return execute(replace(config, validation_fraction=0.0))


def _expect_refittable(config: TrainConfig) -> None:
    """UsageError if the rows cannot be read and split twice, or a threshold is to be chosen."""
    if config.validation is not None:
        raise UsageError(
            "--refit trains on the rows of DATA, to which those of a validation file do not "
            "belong; append them to DATA and remove --validation, or remove --refit"
        )
    if any(name and is_standard_input(name) for name in (config.data, config.test)):
        raise UsageError(
            "--refit reads the data twice, but standard input can be read only once; give a file"
        )
    if config.threshold is not None or (config.members or 1) > 1:
        name = "--threshold" if config.threshold is not None else "--members"
        raise UsageError(
            f"--refit leaves no validation rows for the final model, which {name} needs; remove "
            "one of them"
        )
