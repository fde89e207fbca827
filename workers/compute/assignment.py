"""The run that a worker takes part in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import LOSSES
from hogbatch.config.sets import SetName
from hogbatch.data.batch import Examples
from hogbatch.kernels.contract import NO_SCORES, OPTIMIZERS, Hyper, RowScores, smoothed
from hogbatch.kernels.dropout import Dropout
from hogbatch.model.footprint import EVALUATION_ROWS, RunSizes
from hogbatch.model.network import Network
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.wire.messages import Welcome

if TYPE_CHECKING:
    from hogbatch.kernels.cpu.model import BatchSettings


@dataclass(frozen=True, slots=True)
class Assignment:
    """The run that a worker takes part in; all arrays are in shared memory."""

    welcome: Welcome
    network: Network
    sets: Mapping[SetName, Examples]
    orders: EpochOrders
    model: SharedModel
    fence: NDArray[np.int64]  # [8], the line of this worker: it may write while [0] is Lease.fence
    data: Segment | None = None  # contains `sets`; None if no segment does
    scores: RowScores = NO_SCORES  # of the rows that are evaluated

    @property
    def kinds(self) -> tuple[int, int]:
        """The numbers that kernels have for the loss and the optimizer."""
        loss = smoothed(LOSSES[self.network.loss].kind, self.welcome.label_smoothing)
        return loss, OPTIMIZERS[self.welcome.optimizer.name]

    @property
    def on_disk(self) -> bool:
        """Whether the rows are on disk, and larger than memory."""
        return self.data is not None and self.data.window is not None

    @property
    def dropout(self) -> Dropout | None:
        """The dropout of hidden layers; None if all outputs are kept."""
        fraction = self.welcome.dropout
        return Dropout(fraction, self.welcome.seed) if fraction > 0 else None

    def batches(self, size: int, fence: int, threads: int) -> "BatchSettings":
        """The settings of batches of up to `size` rows, of which `threads` threads train."""
        from hogbatch.kernels.cpu.model import BatchSettings  # imports Numba

        random = self.dropout, self.welcome.augmentation
        return BatchSettings(size, *self.kinds, fence, threads, *random)

    def hyper(self, rate: float) -> Hyper:
        """The settings of the optimizer, with learning rate `rate`."""
        spec = self.welcome.optimizer
        return Hyper(rate, spec.l2, spec.momentum, spec.beta2, spec.epsilon, spec.warm_up)

    @property
    def train(self) -> Examples:
        return self.sets["train"]

    @property
    def held_out(self) -> Mapping[SetName, Examples]:
        """The sets on which the model is evaluated."""
        return {name: rows for name, rows in self.sets.items() if name != "train"}


def run_sizes(assignment: Assignment) -> RunSizes:
    """Return the sizes on which the memory of a worker depends."""
    train, model = assignment.train, assignment.model
    sizes = train.sizes
    return RunSizes(
        assignment.network,
        (model.first.size > 0) + (model.second.size > 0),
        0 if assignment.on_disk else sum(each.nbytes for each in assignment.sets.values()),
        sizes.rows,
        sizes.sparse,
        stored=sizes.stored_in(EVALUATION_ROWS),
        labels=sizes.listed_in(EVALUATION_ROWS),
        lsh=assignment.welcome.lsh,
    )
