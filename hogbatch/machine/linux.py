"""What Linux says of this process's cores: affinity mask, NUMA nodes, SMT, cgroup CPU limits.

A file that is missing or unreadable, as in many containers, limits nothing. `root` stands for /
so that tests can make up machines.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hogbatch.machine.topology import Topology, parse_cores

ROOT = Path("/")


def read_topology(root: Path = ROOT) -> Topology:
    """The machine as this process may use it now."""
    mask = frozenset(os.sched_getaffinity(0))
    return Topology(mask, _nodes(root, mask), _siblings(root, mask), cpu_quota(root))


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs' worth of time that the tightest cgroup on the way to the root grants, if one does."""
    quotas = [quota for group in _groups(root) if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def _nodes(root: Path, mask: frozenset[int]) -> tuple[frozenset[int], ...]:
    files = sorted((root / "sys/devices/system/node").glob("node[0-9]*/cpulist"))
    nodes = [node for file in files if (node := _cores(file) & mask)]
    rest = mask.difference(*nodes)
    return (*nodes, rest) if rest else tuple(nodes)


def _siblings(root: Path, mask: frozenset[int]) -> tuple[frozenset[int], ...]:
    folder = root / "sys/devices/system/cpu"
    lists = {
        core: _cores(folder / f"cpu{core}/topology/thread_siblings_list") & mask for core in mask
    }
    return tuple({(group or frozenset({core})): None for core, group in sorted(lists.items())})


def _cores(file: Path) -> frozenset[int]:
    """The cores that a file lists; none if it lists none or is not there."""
    with suppress(OSError, ValueError):
        return frozenset(parse_cores(file.read_text()))
    return frozenset()


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the cgroups that this process is in, from the innermost to the root.

    In a container without a cgroup namespace, /proc names a path of the host while /sys/fs/cgroup
    is the container's own group. The path is not there then, but the way up ends where it should.
    """
    for mount, inner in _memberships(root):
        parts = [part for part in PurePosixPath(inner).parts if part not in ("/", "..")]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth])


def _memberships(root: Path) -> Iterator[tuple[Path, str]]:
    """Where the cgroups that may limit CPU time are mounted, and which of them is ours."""
    mounts = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, inner = line.split(":", 2)
            if not controllers:  # version 2
                yield mounts, inner
            elif "cpu" in controllers.split(","):  # version 1
                yield from ((mounts / name, inner) for name in {controllers, "cpu"})


def _quota(group: Path) -> float | None:
    """CPUs' worth of time that one cgroup, of either version, grants."""
    with suppress(OSError, ValueError):  # a version 2 without limit says "max"
        quota, period = map(int, (group / "cpu.max").read_text().split())
        return quota / period
    with suppress(OSError, ValueError):
        quota = int((group / "cpu.cfs_quota_us").read_text())
        return quota / int((group / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    return None
