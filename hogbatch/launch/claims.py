"""Which cores the workers of a run get; two runs on one server never pin to the same ones."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hogbatch.config.values import WorkerRequest
from hogbatch.machine.linux import read_topology
from hogbatch.machine.topology import Cores, assign

# Names in Linux's abstract namespace: held by whoever has bound them, gone when its process is,
# visible to every user of this network namespace. A name is there once, so a claim is exclusive.
NAME = "\0hogbatch-core-"


@contextmanager
def pinning(requests: Sequence[WorkerRequest]) -> Iterator[list[Cores]]:
    """The cores for each worker, claimed as long as this lasts; none for those not to be pinned.

    GPU workers are never pinned: their threads mostly wait for the device.
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
    """Those of `cores` that no other run holds, each with what holds it now."""
    claims: dict[int, socket.socket] = {}
    for core in cores:
        try:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError:  # no descriptor is left: the other cores are claimed by nobody
            break
        try:
            claim.bind(f"{NAME}{core}")
            claims[core] = claim
        except OSError:  # somebody else's, or the system does not let us: no claim, no pinning
            claim.close()
    return claims
