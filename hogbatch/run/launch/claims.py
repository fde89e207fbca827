"""Assignment of cores to the workers of a run; no two runs of a server pin to the same core."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hogbatch.config.values import WorkerRequest
from hogbatch.machine.linux import read_topology
from hogbatch.machine.topology import Cores, Topology, assign

# Names in Linux's abstract socket namespace. A name can be bound once, so a claim is exclusive. It
# disappears with its process and is visible to every user of this network namespace.
NAME = "\0hogbatch-core-"


@contextmanager
def pinning(requests: Sequence[WorkerRequest]) -> Iterator[list[Cores]]:
    """The cores of each worker, claimed within this context; none for workers without pinning.

    A GPU worker is never pinned, since its threads mostly wait for the device. If there are enough
    cores, one is claimed for it and left free: CPU threads on all cores would delay the thread that
    launches its kernels, and the GPU would wait.
    """
    topology = read_topology()
    with ExitStack() as undo:
        claims = _claim(topology.cores)
        for claim in claims.values():
            undo.callback(claim.close)
        assigned = _assign(topology, requests, topology.cores - claims.keys())
        for core in claims.keys() - {core for cores in assigned for core in cores}:
            claims[core].close()
        yield [
            () if request.device == "gpu" else cores
            for request, cores in zip(requests, assigned, strict=True)
        ]


def _assign(
    topology: Topology, requests: Sequence[WorkerRequest], taken: Iterable[int]
) -> list[Cores]:
    """Assign a core to each thread and each GPU worker; without GPU workers if that fails."""
    threads = [request.threads for request in requests]  # 0 for a GPU worker
    with_gpus = assign(topology, [max(1, each) for each in threads], taken)
    return with_gpus if any(with_gpus) else assign(topology, threads, taken)


def _claim(cores: Iterable[int]) -> dict[int, socket.socket]:
    """Claim the `cores` that no other run has claimed; return core → socket of the claim."""
    claims: dict[int, socket.socket] = {}
    for core in cores:
        try:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError:  # no descriptor is left: the other cores stay unclaimed
            break
        try:
            claim.bind(f"{NAME}{core}")
            claims[core] = claim
        except OSError:  # claimed by another run, or not permitted: no pinning
            claim.close()
    return claims
