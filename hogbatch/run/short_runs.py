"""Short runs on some of the training rows, whose errors on others decide between two settings."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import numpy as np

from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.data.folds import rows_of
from hogbatch.data.load import LoadedData
from hogbatch.data.order import Groups, RowNumbers
from hogbatch.errors import UsageError
from hogbatch.machine.linux import read_topology
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.planning import network_for, with_recipe
from hogbatch.run.platform import Platform
from hogbatch.run.results import Run
from hogbatch.run.setup import ReadData
from hogbatch.run.this_server import ThisServer

FOLDS: Final = 5  # of training rows: each short run holds out one
MOST_ROWS: Final = 20_000  # in all folds
MAX_WIDTH: Final = 128  # of the hidden layers
SAME: Final = (
    *("data", "activation", "loss", "recipe", "optimizer", "lr", "schedule", "l2", "seed"),
    *("layers", "input_shape", "augment"),
)


class Execute(Protocol):
    """`run.training.execute`."""

    def __call__(
        self, config: TrainConfig, platform: Platform, read: ReadData, *, temporary: bool
    ) -> Run: ...


Case = tuple[TrainConfig, LoadedData]


def mean_errors(
    cases: Sequence[Case],
    error: Callable[[Run], float],
    execute: Execute,
    compared: Sequence[int] = (0, 1),
    most_rows: int = MOST_ROWS,
) -> list[float]:
    """The mean `error` of short runs of each case, side by side on the cores of this server.

    The settings of a case are those of `short`. At most `most_rows` rows are in all folds, and the
    folds with the numbers `compared`, from 0, are held out by one run of each case.
    """
    config, train = cases[0][0], cases[0][1].train
    random = np.random.default_rng(config.seed)
    folds = _folds(random.permutation(train.rows)[:most_rows], cases[0][1].groups, random)
    platform = ThisServer(True, Callbacks(interrupts=Interrupts(())), side_by_side=True)

    def trained(case: tuple[Case, Sequence[RowNumbers]]) -> float:
        (config, data), (own, held_out) = case
        rows: Mapping[SetName, RowNumbers] = {"train": own, "validation": held_out}
        sets = {name: rows_of(data.train, each) for name, each in rows.items()}
        try:
            run = execute(config, platform, lambda *_: data.with_sets(sets), temporary=True)
        except UsageError:  # training has diverged
            return math.inf
        return error(run)

    some = [(np.concatenate([*folds[:n], *folds[n + 1 :]]), folds[n]) for n in compared]
    every = [(case, rows) for case in cases for rows in some]
    with ThreadPoolExecutor(min(len(every), read_topology().threads)) as pool:
        found = np.reshape([*pool.map(trained, every)], (len(cases), len(compared)))
    return [float(each) for each in found.mean(axis=1)]


def _folds(
    rows: RowNumbers, groups: Groups | None, random: np.random.Generator
) -> Sequence[RowNumbers]:
    """`rows` in FOLDS parts; all rows of a group are in the same part, as in a run."""
    if groups is None:
        return np.array_split(rows, FOLDS)
    own, number = np.unique(groups.numbers[rows], return_inverse=True)
    if len(own) < FOLDS:  # a part would have no rows
        return np.array_split(rows, FOLDS)
    part = random.permutation(len(own))[number] % FOLDS
    return [rows[part == n] for n in range(FOLDS)]


def short(config: TrainConfig, data: LoadedData) -> TrainConfig:
    """The settings of a short run, with the network and the recipe of the run `config`."""
    network = network_for(config, data)
    config = with_recipe(config, data, network)
    same = {name: getattr(config, name) for name in SAME}
    return TrainConfig(
        **same,
        hidden=None if config.layers else tuple(min(n, MAX_WIDTH) for n in network.hidden),
        members=1,
        deterministic=True,
        quiet=True,
    )


def validation_loss(run: Run) -> float:
    """The lowest one of a short run; infinite if it has none."""
    return math.inf if run.validation_loss is None else run.validation_loss
