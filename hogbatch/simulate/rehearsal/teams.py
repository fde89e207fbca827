"""Division of the threads of rehearsed CPU workers into teams."""

from collections.abc import Sequence

from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.plan import Training
from hogbatch.data.batch import Examples
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.machine.topology import Topology, assign, physical_cores
from hogbatch.model.network import Network
from hogbatch.simulate.hardware.description import Cpu
from hogbatch.workers.compute.teams import Teams, computes_together, divide


def teams_of(
    cpu: Cpu,
    workers: Sequence[WorkerRequest],
    training: Training,
    network: Network,
    train: Examples,
    *,
    pin: bool,
) -> list[Teams | None]:
    """The teams of each of `workers` on `cpu`, as real workers would divide their threads.

    None for a GPU worker. `pin` is whether threads are pinned if there are enough logical cores.
    """
    loop = loop_for(network.layer_views(), sparse=train.sparse, hashed=training.lsh is not None)
    wanted = training.cpu_teams
    together = computes_together(wanted, loop.name, network.layer_views(), train)
    threads = [worker.threads for worker in workers]
    cores = pinned_cores(cpu, threads) if pin else [0 for _ in threads]
    return [
        divide(wanted, worker.threads, count, together=together) if worker.device == "cpu" else None
        for worker, count in zip(workers, cores, strict=True)
    ]


def pinned_cores(cpu: Cpu, threads: Sequence[int]) -> list[int]:
    """The physical cores of workers with these numbers of threads; 0 if they cannot be pinned."""
    cores = range(cpu.threads)
    siblings = tuple(frozenset(cores[first :: cpu.cores]) for first in range(cpu.cores))
    every = frozenset(cores)
    topology = Topology(every, (every,), siblings)
    return [physical_cores(topology, own) for own in assign(topology, threads)]
