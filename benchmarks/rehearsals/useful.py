"""The batch sizes of a described GPU that are worth trying, from its predicted speeds."""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.rehearsals.sets import SETS
from hogbatch.config.train import TrainConfig
from hogbatch.data.cache import DataCache
from hogbatch.data.load import load
from hogbatch.model.optimizers import OPTIMIZERS
from hogbatch.policy.throughput import useful_limits
from hogbatch.run.planning import network_for, plan_for
from hogbatch.servers.description import read_server
from hogbatch.servers.gpu_cost import GpuCost
from hogbatch.servers.workload import Workload

LEAST: Final = 16  # rows; smaller batches of a GPU are not tried
STEPS: Final = 4  # least ratio of the largest to the smallest of the first batches


@dataclass(frozen=True, slots=True)
class Range:
    """The least batches with which a GPU reaches half and nine tenths of its peak rows/s."""

    low: int
    high: int

    def spread(self) -> list[int]:
        """A middle batch and both ends of the range, from a quarter of its top at least."""
        low = max(LEAST, min(self.low, self.high // STEPS))
        middle = 2 ** int(math.log2(low * self.high) / 2)
        return list(dict.fromkeys([middle, low, self.high]))


def useful_range(set_name: str, server: str, data: Path) -> Range:
    """The range of the first GPU of a server with the data and network of a set."""
    described, workload = read_server(server), _workload(set_name, data)
    gpu = next(gpu for gpu in described.gpus if gpu.ordinal != "host")
    return Range(*useful_limits(GpuCost(gpu, described.cpu, workload).profile(workload.rows)))


@cache
def _workload(set_name: str, data: Path) -> Workload:
    """The sizes on which the speeds depend, as a rehearsal with default settings computes them."""
    case = SETS[set_name].case
    test = case.task.test and str(data / case.task.test)
    config = TrainConfig(
        data=str(data / case.task.data),
        test=test,
        hidden=case.task.hidden,
        activation=case.activation,
    )
    loaded = load(
        config.data, test=config.test, cache=DataCache.of(config.data_cache, lambda note: None)
    )
    network = network_for(config, loaded)
    plan, spec = plan_for(config, loaded, network, "useful"), OPTIMIZERS[config.optimizer]
    return Workload.of(
        *(network, loaded.train, spec.slots, plan.training.lsh),
        may_densify=spec.ignores_zeros and plan.training.optimizer.l2 == 0.0,
    )
