"""Assignment of cores to the workers of a run; no two runs of a server pin to the same core."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hogbatch.config.values import WorkerRequest
from hogbatch.machine.linux import read_topology
from hogbatch.machine.topology import Cores, assign

# Names in Linux's abstract socket namespace. A name can be bound once, so a claim is exclusive. It
# disappears with its process and is visible to every user of this network namespace.
NAME = "\0hogbatch-core-"


@contextmanager
def pinning(requests: Sequence[WorkerRequest]) -> Iterator[list[Cores]]:
    """The cores of each worker, claimed within this context; none for workers without pinning.

    GPU workers are never pinned, since their threads mostly wait for the device.
    """
    topology = read_topology()
    threads = [request.threads for request in requests]  # 0 for a GPU worker
    with ExitStack() as undo:
        claims = _claim(topology.cores)
        for claim in claims.values():
            undo.callback(claim.close)
        given = assign(topology, threads, topology.cores - claims.keys())
        for core in claims.keys() - {core for cores in given for core in cores}:
            claims[core].close()
        yield given


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
