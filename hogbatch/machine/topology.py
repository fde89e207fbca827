"""Cores and who gets them: arithmetic alone.

A core is a logical one, as Linux numbers them. With SMT, several share one physical core and its
arithmetic units; so a thread is worth most on a physical core of its own.
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
    """The cores of the affinity mask, and what else decides over their use."""

    cores: frozenset[int]
    nodes: tuple[frozenset[int], ...]  # the mask, cut by NUMA node; no node is empty
    siblings: tuple[frozenset[int], ...]  # the mask, cut by physical core
    quota: float | None = None  # CPUs' worth of time that the cgroup grants; None: no limit

    @property
    def threads(self) -> int:
        """Threads that keep busy all that this process may use; at least 1.

        A quota is rounded up: Hogwild threads wait for nobody, so one that is throttled for a
        part of the time holds up no other, and nothing of the quota is left unused.
        """
        granted = len(self.cores) if self.quota is None else math.ceil(self.quota)
        return max(1, min(len(self.cores), granted))


def assign(topology: Topology, threads: Sequence[int], taken: Iterable[int] = ()) -> list[Cores]:
    """Cores for CPU workers of so many threads each, disjoint and none of them `taken`.

    Physical cores of their own come first, then as few NUMA nodes as possible for each worker.
    All are empty, for the scheduler does better, when there are fewer cores than threads, or when
    the quota is below the mask: then others are granted time on the very same cores.
    """
    free = topology.cores - set(taken)
    shared = topology.quota is not None and topology.quota < len(topology.cores)
    if shared or sum(threads) > len(free):
        return [() for _ in threads]
    given: dict[int, Cores] = {}
    for worker in sorted(range(len(threads)), key=lambda each: -threads[each]):
        given[worker] = _choose(topology, free, threads[worker])
        free = free.difference(given[worker])
    return [given[worker] for worker in range(len(threads))]


def _choose(topology: Topology, free: frozenset[int], wanted: int) -> Cores:
    """The best `wanted` of the `free` cores."""
    crowd = _crowd(topology, free)
    most = max(sorted(crowd.values())[:wanted], default=0)  # the least crowding that suffices
    pool = {core for core in free if crowd[core] <= most}
    nodes = _fewest([pool & node for node in topology.nodes], wanted)
    ranked = sorted((crowd[core], place, core) for place, n in enumerate(nodes) for core in n)
    return tuple(sorted(core for _, _, core in ranked[:wanted]))


def _crowd(topology: Topology, free: frozenset[int]) -> dict[int, int]:
    """For each free core: how many of its physical core are in use by the time it is."""
    return {
        core: len(group - free) + place
        for group in topology.siblings
        for place, core in enumerate(sorted(group & free))
    }


def _fewest(nodes: Sequence[set[int]], wanted: int) -> list[set[int]]:
    """The smallest node with `wanted` cores; without one, the largest nodes that have them."""
    enough = [node for node in nodes if len(node) >= wanted]
    if enough:
        return [min(enough, key=len)]
    largest = sorted(nodes, key=len, reverse=True)
    room = list(accumulate(map(len, largest)))
    return largest[: bisect_left(room, wanted) + 1]


def parse_cores(text: str) -> Cores:
    """Read a list as Linux writes it, "0,2,4-7", in its order; ValueError for anything else."""
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
    """Write a list as Linux does: (0, 2, 4, 5, 6, 7) is "0,2,4-7"."""
    runs = groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0])
    lists = [[core for _, core in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in lists)
