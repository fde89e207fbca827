"""Assignment of cores to the workers of a run; no two runs of a server pin to the same core.

docs/decisions/0064-claims-of-other-users.md says which claims count, and why.
"""

import errno
import logging
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from hogbatch.config.values import WorkerRequest
from hogbatch.machine.linux import read_topology
from hogbatch.machine.process import pinned_cores
from hogbatch.machine.topology import Cores, Topology, assign, show_cores

log = logging.getLogger(__name__)

# Names in Linux's abstract socket namespace. A name can be bound once, so a claim is exclusive. It
# disappears with its process and is visible to every user of this network namespace.
NAME = "\0hogbatch-core-"
# Each `_owner` of another run leaves a connection that is never accepted. When the queue is full,
# the kernel refuses connections, and the owner is unknown. The limit is net.core.somaxconn.
BACKLOG: Final = 1 << 16
CREDENTIALS: Final = "iII"  # process, user, group: struct ucred of unix(7)


@contextmanager
def pinning(requests: Sequence[WorkerRequest]) -> Iterator[list[Cores]]:
    """The cores of each worker, claimed within this context; none for workers without pinning.

    A GPU worker is never pinned, since its threads mostly wait for the device. If there are enough
    cores, one is claimed for it and left free: CPU threads on all cores would delay the thread that
    launches its kernels, and the GPU would wait.
    """
    topology = read_topology()
    with ExitStack() as undo:
        claims, of_others = _claim(topology.cores)
        # Some of these claims may have been those of a run that has ended since.
        released, ignored = _claim(_unused(of_others))
        claims |= released
        for claim in claims.values():
            undo.callback(claim.close)
        if ignored:
            log.warning(
                "cores %s: another user claims them, but has pinned no thread to them; the claims "
                "are ignored",
                show_cores(ignored),
            )
        free = claims.keys() | ignored
        assigned = _assign(topology, requests, topology.cores - free)
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


def _claim(cores: Iterable[int]) -> tuple[dict[int, socket.socket], set[int]]:
    """Claim `cores`; return core → socket of the claim, and the cores that others have claimed."""
    claims: dict[int, socket.socket] = {}
    of_others: set[int] = set()
    for core in cores:
        try:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError:  # no descriptor is left: the other cores stay unclaimed
            break
        try:
            claim.bind(f"{NAME}{core}")
            claim.listen(BACKLOG)
            claims[core] = claim
        except OSError as error:  # in other cases it is not permitted: no pinning
            claim.close()
            if error.errno == errno.EADDRINUSE:
                of_others.add(core)
    return claims, of_others


def _unused(claimed: Iterable[int]) -> set[int]:
    """The cores of those `claimed` by another user to which none of that user's threads is pinned.

    A core whose claim was released meanwhile is one of them.
    """
    foreign = {core for core in claimed if _owner(core) not in (0, os.getuid())}
    return foreign - pinned_cores() if foreign else set()


def _owner(core: int) -> int | None:
    """The user who has claimed `core`, as the kernel reports; None if it cannot tell."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        probe.connect(f"{NAME}{core}")
        size = struct.calcsize(CREDENTIALS)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        _, user, _ = struct.unpack(CREDENTIALS, credentials)
        return int(user)
    return None
