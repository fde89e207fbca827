"""Useful settings for the network of a set on a described server.

These are the batch sizes of its GPU, from its predicted speeds, and of its CPU, from its teams.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.common.data_sets import TEST_FRACTION
from benchmarks.rehearsals.sets import SETS
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.data.batch import Examples
from hogbatch.model.network import Network
from hogbatch.policy.limits import largest_cpu_batch, useful_limits
from hogbatch.run.planning import network_for, plan_for, with_recipe
from hogbatch.run.setup import load_data
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.hardware.gpu_cost import GpuCost
from hogbatch.simulate.hardware.workload import Workload
from hogbatch.simulate.rehearsal.rehearsal import teams_of
from hogbatch.views.console import PlainConsole
from hogbatch.wire.messages import Welcome

LEAST: Final = 16  # rows; smaller batches of a GPU are not tried
STEPS: Final = 4  # least ratio of the largest to the smallest of the first batches of a GPU,
# and ratio of two of the first batches of the CPU
MANY_ROWS: Final = 1 << 30  # of a training set that does not limit batches


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


def members_of_teams(set_name: str, server: str, data: Path) -> int:
    """The CPU threads of a server that compute a batch together if the CPU trains alone."""
    cpu, problem = read_server(server).cpu, _problem(set_name, data)
    workers = (WorkerRequest("cpu", threads=cpu.threads),)
    (teams,) = teams_of(cpu, workers, problem.training, problem.network, problem.train, pin=True)
    assert teams is not None, "it is the one of a CPU worker"
    return teams.members


def cpu_batches(members: int) -> tuple[int, int, int]:
    """A middle batch, and a quarter and four times of it, for teams of `members` threads."""
    middle = largest_cpu_batch(MANY_ROWS, members)
    return middle, middle // STEPS, middle * STEPS


def useful_range(set_name: str, server: str, data: Path) -> Range:
    """The range of the first GPU of a server with the data and network of a set."""
    described, workload = read_server(server), _problem(set_name, data).workload
    gpu = next(gpu for gpu in described.gpus if gpu.ordinal != "host")
    return Range(*useful_limits(GpuCost(gpu, workload).profile(workload.rows)))


@dataclass(frozen=True, slots=True)
class _Problem:
    """A set with its network, as a rehearsal with default settings trains it."""

    network: Network
    train: Examples
    training: Welcome
    workload: Workload  # the sizes on which the speeds depend


@cache
def _problem(set_name: str, data: Path) -> _Problem:
    case = SETS[set_name].case
    files = case.task.files(data)
    config = TrainConfig(
        data=str(files[0]),
        validation=str(files[1]) if len(files) > 1 else None,
        validation_fraction=TEST_FRACTION,
        test_fraction=0.0,
        hidden=case.task.hidden,
        activation=case.activation,
        recipe="fast",
    )
    loaded = load_data(config, PlainConsole(quiet=True))
    network = network_for(config, loaded)
    config = with_recipe(config, loaded, network)
    plan, spec = plan_for(config, loaded, network), OPTIMIZERS[config.optimizer]
    workload = Workload.of(
        *(network, loaded.train, spec.slots, plan.training.lsh),
        may_densify=spec.ignores_zeros and plan.training.optimizer.l2 == 0.0,
    )
    return _Problem(network, loaded.train, plan.training, workload)
