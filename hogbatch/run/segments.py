"""The two shared memory segments of a run: its data, and everything that its processes write."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from hogbatch.config.losses import LOSSES
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.train import TrainConfig
from hogbatch.data.facts import DataFacts
from hogbatch.data.load import LoadedData
from hogbatch.data.order import epoch_order, order_of_parts
from hogbatch.errors import UsageError
from hogbatch.model.network import Network
from hogbatch.model.prior import prior_scores
from hogbatch.model.tensors import Arrays
from hogbatch.run.large import MappedData
from hogbatch.store import dataset, row_scores
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.quarantine import QuarantinedRows
from hogbatch.store.segment import Segment


class DataOfServers(DataFacts, ABC):
    """Data whose rows are read by the servers that train on them."""

    @abstractmethod
    def segment(self) -> Segment:
        """A read-only segment with what a server needs to read its rows."""


RunData = LoadedData | DataOfServers


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """The properties of the rows of a run besides their values."""

    rows: int
    features: int
    fingerprint: str
    seed: int  # of the epoch orders and of the initial weights
    mean_square: float = 1.0  # of the inputs, summed over the features
    parts: tuple[tuple[int, int], ...] | None = None  # (number, rows) of each, of divided rows
    evaluated: int = 0  # rows of the largest set whose scores are kept

    @classmethod
    def of(cls, config: TrainConfig, data: DataFacts) -> Self:
        """The rows of `data`."""
        train = data.train_sizes
        held_out = data.set_sizes.keys() - {"train"} if config.data_copies is None else ()
        return cls(
            train.rows,
            train.features,
            data.fingerprint,
            config.seed,
            data.mean_square,
            evaluated=max((data.set_sizes[name].rows for name in held_out), default=0),
        )


class RunSegments:
    """The shared memory segments of a run, filled and ready to be sent to workers."""

    def __init__(
        self, data: Segment, training: TrainingRows, network: Network, slots: int, run_dir: Path
    ) -> None:
        """`data` is filled; the model has `slots` optimizer slots for each parameter."""
        self.data = data
        layout = arrange(
            SharedModel.fields(network.parameters, slots),
            EpochOrders.fields(training.rows),
            Fences.fields(),
            row_scores.fields(training.evaluated, network.outputs),
        )
        self.shared = Segment.create("shared", layout)
        self.model = SharedModel.of(self.shared)
        self.fences = Fences.of(self.shared)
        self.scores = row_scores.row_scores(self.shared)
        self.quarantined = QuarantinedRows(run_dir)
        self._network, self._training = network, training
        self.orders = EpochOrders.attach(self.shared)
        self._start: SharedModel | None = None
        self.features, self.fingerprint = training.features, training.fingerprint
        self.initialise_model()

    @classmethod
    def of(cls, config: TrainConfig, data: RunData, network: Network, run_dir: Path) -> Self:
        """The segments of a run on `data`, whose rows are copied, unless they are divided."""
        slots, training = OPTIMIZERS[config.optimizer].slots, TrainingRows.of(config, data)
        if not isinstance(data, LoadedData):
            training = replace(training, rows=0, parts=())  # they have their order on the servers
            return cls(data.segment(), training, network, slots, run_dir)
        if isinstance(data, MappedData):
            return cls(data.segment, training, network, slots, run_dir)
        layout = arrange(dataset.fields(data.set_sizes))
        segment = Segment.create("data", layout, read_only=True)
        dataset.fill(segment, [data.sets])
        return cls(segment, training, network, slots, run_dir)

    def initialise_model(self) -> None:
        """Set the initial weights, and the optimizer slots and counters to 0.

        After :meth:`start_from`, set all of them to those of that model.
        """
        if self._start is not None:
            self.model.assign(self._start)
            return
        for array in (self.model.first, self.model.second, self.model.steps, self.model.merges):
            array[:] = 0
        training, network, params = self._training, self._network, self.model.params
        network.initialise(params, training.seed, training.mean_square)
        if training.parts is not None:  # no server has all rows
            return
        train = dataset.sets_of(self.data, self.features)["train"]
        tensors = network.from_stored(params)
        if not network.linear:
            # Random weights of a feature that no training row has would only disturb later rows.
            tensors["layers.0.weight"][train.absent_features] = 0
        bias = tensors[f"layers.{len(network.layers) - 1}.bias"]
        bias[:] = prior_scores(LOSSES[network.loss], train.labels, network.outputs)

    def start_from(self, model: SharedModel) -> None:
        """Begin with `model` in place of initial weights; UsageError if its size differs."""
        sizes = [[*map(len, each.arrays.values())] for each in (model, self.model)]
        if sizes[0] != sizes[1]:
            raise UsageError(
                "cannot continue from the earlier model: it has another network or optimizer; use "
                "the same ones, or start a new run"
            )
        self._start = model
        self.initialise_model()

    def restore(self, arrays: Arrays) -> None:
        """Set the model and the quarantined rows from the `arrays` of a checkpoint."""
        self.model.assign(SharedModel(**{name: arrays[name] for name in self.model.arrays}))
        self.quarantined.rows = [int(row) for row in arrays["quarantined"]]

    def close(self) -> None:
        """Release the memory; existing views of it stay valid until they are deleted."""
        self.data.close()
        self.shared.close()

    def as_views(self, data: LoadedData) -> LoadedData:
        """Return `data` with its sets as views of shared memory, so that only one copy remains."""
        sets = dataset.sets_of(self.data, self.features)
        return replace(data, sets=sets, in_logs=None, with_values=None)

    def shuffle(self, epoch: int, quarantined: int) -> None:
        """Write the row order of `epoch`, with the first `quarantined` quarantined rows last.

        Divided rows are ordered within their parts, and none of them comes last: only the epoch in
        which they are quarantined is without them.
        """
        order, training = self.orders.row_order(epoch), self._training
        if training.parts is not None:
            order[:] = order_of_parts(training.parts, training.seed, epoch)
            return
        last = self.quarantined.rows[:quarantined]
        order[:] = epoch_order(len(order), training.seed, epoch, last, self.data.window)

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        """Exclude rows [start, stop) of the order of `epoch` from later epochs."""
        self.quarantined.add(self.orders.row_order(epoch), epoch, start, stop)
