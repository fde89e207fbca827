"""The run that a worker takes part in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import LOSSES
from hogbatch.data.batch import Examples
from hogbatch.kernels.contract import OPTIMIZERS, Hyper
from hogbatch.model.footprint import EVALUATION_ROWS, RunSizes
from hogbatch.model.network import Network
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.wire.messages import Welcome


@dataclass(frozen=True, slots=True)
class Assignment:
    """The run that a worker takes part in; all arrays are in shared memory."""

    welcome: Welcome
    network: Network
    train: Examples
    test: Examples | None
    orders: EpochOrders
    model: SharedModel
    fence: NDArray[np.int64]  # [8], the line of this worker: it may write while [0] is Lease.fence
    data: Segment | None = None  # contains `train` and `test`; None if no segment does

    @property
    def kinds(self) -> tuple[int, int]:
        """The numbers that kernels have for the loss and the optimizer."""
        return LOSSES[self.network.loss].kind, OPTIMIZERS[self.welcome.optimizer.name]

    def hyper(self, rate: float) -> Hyper:
        """The settings of the optimizer, with learning rate `rate`."""
        spec = self.welcome.optimizer
        return Hyper(rate, spec.l2, spec.momentum, spec.beta2, spec.epsilon)

    @property
    def evaluated(self) -> Examples:
        """The test set, for leases whose task is "evaluate"."""
        assert self.test is not None, "the coordinator hands out test rows only if there are any"
        return self.test


def run_sizes(assignment: Assignment) -> RunSizes:
    """Return the sizes on which the memory of a worker depends."""
    train, model = assignment.train, assignment.model
    sizes = train.sizes
    sets = (train,) if assignment.test is None else (train, assignment.test)
    return RunSizes(
        assignment.network,
        (model.first.size > 0) + (model.second.size > 0),
        sum(each.nbytes for each in sets),
        sizes.rows,
        sizes.sparse,
        stored=sizes.stored_in(EVALUATION_ROWS),
        labels=sizes.listed_in(EVALUATION_ROWS),
        lsh=assignment.welcome.lsh,
    )
