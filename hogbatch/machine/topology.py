"""The assignment of cores to workers: arithmetic only.

A core is a logical core, as Linux numbers them. With SMT, several logical cores share one physical
core and its arithmetic units, so a thread runs fastest on a physical core of its own.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

Cores = tuple[int, ...]

MAX_CORES = 1 << 16  # in one range of a list; Linux itself stops at 8192


@dataclass(frozen=True, slots=True)
class Topology:
    """The cores of the affinity mask, their grouping, and the CPU quota."""

    cores: frozenset[int]
    nodes: tuple[frozenset[int], ...]  # the mask split by NUMA node, without empty nodes
    siblings: tuple[frozenset[int], ...]  # the mask split by physical core
    quota: float | None = None  # CPU quota of the cgroup in CPUs; None: no quota

    @property
    def threads(self) -> int:
        """Number of threads that use all logical cores of this process; at least 1.

        A quota is rounded up. Hogwild threads do not wait for each other, so a thread that is
        throttled part of the time does not delay the others, and the whole quota is used.
        """
        granted = len(self.cores) if self.quota is None else math.ceil(self.quota)
        return max(1, min(len(self.cores), granted))


def assign(topology: Topology, threads: Sequence[int], taken: Iterable[int] = ()) -> list[Cores]:
    """Choose disjoint cores, not in `taken`, for CPU workers with these numbers of threads.

    Prefers physical cores that are not shared, then few NUMA nodes per worker. All results are
    empty, which leaves placement to the scheduler, if there are fewer cores than threads or if the
    quota is smaller than the mask, because other processes then run on the same cores.
    """
    free = topology.cores - set(taken)
    shared = topology.quota is not None and topology.quota < len(topology.cores)
    if shared or sum(threads) > len(free):
        return [() for _ in threads]
    assigned: dict[int, Cores] = {}
    for worker in sorted(range(len(threads)), key=lambda each: -threads[each]):
        assigned[worker] = _choose(topology, free, threads[worker])
        free = free.difference(assigned[worker])
    return [assigned[worker] for worker in range(len(threads))]


def _choose(topology: Topology, free: frozenset[int], wanted: int) -> Cores:
    crowding = _crowding(topology, free)
    limit = max(sorted(crowding.values())[:wanted], default=0)  # smallest value with enough cores
    pool = {core for core in free if crowding[core] <= limit}
    nodes = _fewest_nodes([pool & node for node in topology.nodes], wanted)
    ranked = sorted((crowding[core], index, core) for index, n in enumerate(nodes) for core in n)
    return tuple(sorted(core for _, _, core in ranked[:wanted]))


def _crowding(topology: Topology, free: frozenset[int]) -> dict[int, int]:
    """Return, for each free core, how many cores of its physical core are used before it."""
    return {
        core: len(group - free) + index
        for group in topology.siblings
        for index, core in enumerate(sorted(group & free))
    }


def _fewest_nodes(nodes: Sequence[set[int]], wanted: int) -> list[set[int]]:
    """Return the smallest node with `wanted` cores, or else the fewest large nodes with enough."""
    enough = [node for node in nodes if len(node) >= wanted]
    if enough:
        return [min(enough, key=len)]
    largest = sorted(nodes, key=len, reverse=True)
    room = list(accumulate(map(len, largest)))
    return largest[: bisect_left(room, wanted) + 1]


def training_threads(threads: int, cores: int, gpus: int = 0) -> int:
    """Return the number of CPU threads that train by default beside `gpus` GPU workers; at least 1.

    `threads` is the number of logical cores, `cores` that of physical ones. A second thread on a
    physical core adds little speed, but makes updates staler. A logical core is left for each GPU
    worker, because CPU threads on all of them would delay the thread that launches its kernels.
    """
    return max(1, min(cores, threads - gpus))


def physical_cores(topology: Topology, cores: Cores) -> int:
    """Return the number of physical cores to which `cores` belong."""
    return sum(1 for group in topology.siblings if group.intersection(cores))


def cores_of_teams(topology: Topology, cores: Cores, teams: int, members: int) -> list[Cores]:
    """Choose `members` of `cores` for each of some teams of threads.

    The threads of a team get physical cores of their own if there are enough, of one NUMA node if
    possible, and neighbours, which often share a cache.
    """
    chosen = frozenset(cores)
    turn = {
        core: index
        for group in topology.siblings
        for index, core in enumerate(sorted(group & chosen))
    }
    node = {core: index for index, group in enumerate(topology.nodes) for core in group}
    ranked = sorted(cores, key=lambda core: (turn.get(core, 0), node.get(core, 0), core))
    return [tuple(ranked[n * members : (n + 1) * members]) for n in range(teams)]


def parse_cores(text: str) -> Cores:
    """Parse a list as Linux writes it, "0,2,4-7", in its order; ValueError if it is invalid."""
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"expected core numbers as in 0,2,4-7; got {text!r}")
        start, stop = int(first), int(last or first) + 1
        if not start < stop <= start + MAX_CORES:
            raise ValueError(f"expected a range from low to high; got {part.strip()!r}")
        cores += range(start, stop)
    if len(set(cores)) < len(cores):
        raise ValueError(f"expected each core once; got {text!r}")
    return tuple(cores)


def show_cores(cores: Iterable[int]) -> str:
    """Format a list as Linux does: (0, 2, 4, 5, 6, 7) is "0,2,4-7"."""
    runs = groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0])
    lists = [[core for _, core in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in lists)
