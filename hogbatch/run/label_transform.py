"""The choice between labels and their logarithms (`--label-transform auto`).

Short runs are made with both, on some of the training rows. The error on other training rows
decides, in the unit of the labels.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.data.folds import rows_of
from hogbatch.data.load import LoadedData
from hogbatch.data.order import RowNumbers
from hogbatch.errors import UsageError
from hogbatch.machine.linux import read_topology
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.planning import network_for, with_recipe
from hogbatch.run.platform import Platform
from hogbatch.run.results import Run
from hogbatch.run.segments import RunData
from hogbatch.run.setup import ReadData
from hogbatch.run.this_server import ThisServer
from hogbatch.views.console import Console, figure

FOLDS: Final = 5  # of training rows: each short run holds out one
COMPARED: Final = 2  # folds that are held out by one run with each kind of labels
MOST_ROWS: Final = 10_000  # in all folds
MIN_ROWS: Final = 500  # training rows; fewer cannot show which error is lower
MAX_WIDTH: Final = 128  # of their hidden layers
MAX_RATIO: Final = 0.9  # of the errors, because chance decides, too
SAME: Final = (
    *("data", "layers", "input_shape", "activation", "recipe", "optimizer", "lr", "schedule"),
    *("l2", "seed"),
)


class Execute(Protocol):
    """`run.training.execute`."""

    def __call__(
        self, config: TrainConfig, platform: Platform, read: ReadData, *, temporary: bool
    ) -> Run: ...


def read_better(read: ReadData, execute: Execute, config: TrainConfig, console: Console) -> RunData:
    """What `read` returns, with logarithms of the labels if they are clearly better."""
    data = read(config, console)
    if not isinstance(data, LoadedData) or data.in_logs is None:
        return data
    plain, logs = replace(data, in_logs=None), data.in_logs
    if data.train.rows < MIN_ROWS:
        return plain
    console.busy("comparing labels with their logarithms")
    before, after = _errors(config, (plain, logs), execute)
    better = after < MAX_RATIO * before
    console.say(
        f"label transform: {'log1p' if better else 'none'}; short runs have a validation rmse of "
        f"{figure(before)}, with log1p {figure(after)}"
    )
    return logs if better else plain


def _errors(config: TrainConfig, kinds: Sequence[LoadedData], execute: Execute) -> list[float]:
    """The validation errors of short runs with each kind of labels, in the unit of the labels."""
    settings, train = _settings(config, kinds[0]), kinds[0].train
    order = np.random.default_rng(config.seed).permutation(train.rows)
    folds = np.array_split(order[:MOST_ROWS], FOLDS)
    platform = ThisServer(True, Callbacks(interrupts=Interrupts(())), side_by_side=True)

    def error(case: tuple[LoadedData, Sequence[RowNumbers]]) -> float:
        data, (own, held_out) = case
        rows: Mapping[SetName, RowNumbers] = {"train": own, "validation": held_out}
        sets = {name: rows_of(data.train, each) for name, each in rows.items()}
        try:
            run = execute(settings, platform, lambda *_: replace(data, sets=sets), temporary=True)
        except UsageError:  # training has diverged
            return math.inf
        return float(run.summary["validation"]["values"]["rmse"])

    some = [(np.concatenate([*folds[:n], *folds[n + 1 :]]), folds[n]) for n in range(COMPARED)]
    cases = [(data, rows) for data in kinds for rows in some]
    with ThreadPoolExecutor(min(len(cases), read_topology().threads)) as pool:
        found = np.reshape([*pool.map(error, cases)], (len(kinds), COMPARED))
    return list(np.sqrt((found**2).mean(axis=1)))


def _settings(config: TrainConfig, data: LoadedData) -> TrainConfig:
    """The settings of a short run, with the network and the recipe of the run `config`."""
    network = network_for(config, data)
    config = with_recipe(config, data, network)
    same = {name: getattr(config, name) for name in SAME}
    return TrainConfig(
        **same,
        hidden=None if config.layers else tuple(min(n, MAX_WIDTH) for n in network.hidden),
        loss="squared",
        metric="rmse",
        members=1,
        deterministic=True,
        quiet=True,
    )
