"""What Linux says this process may use: affinity mask, NUMA nodes, SMT, memory, cgroup limits.

A file that is missing or unreadable, as in many containers, limits nothing. `root` stands for /
so that tests can make up machines.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hogbatch.machine.topology import Topology, parse_cores

ROOT = Path("/")
MEMORY_FILES = (  # limit, usage, and what memory.stat calls the pages of unused files
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
UNLIMITED = 1 << 60  # bytes; version 1 has no word for it, but a number near 2^63


def read_topology(root: Path = ROOT) -> Topology:
    """The machine as this process may use it now."""
    mask = frozenset(os.sched_getaffinity(0))
    return Topology(mask, _nodes(root, mask), _siblings(root, mask), cpu_quota(root))


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs' worth of time that the tightest cgroup on the way to the root grants, if one does."""
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def free_memory(root: Path = ROOT) -> int:
    """Bytes that this server can still give to programs, as the kernel estimates it.

    Where it gives no estimate, the free memory, without what it could reclaim of files.
    """
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_quota(root: Path = ROOT) -> int | None:
    """Bytes that the fullest cgroup on the way to the root still grants, if one sets a limit."""
    room = [bytes_ for group in _groups(root, "memory") if (bytes_ := _room(group)) is not None]
    return min(room, default=None)


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


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the cgroups that this process is in, from the innermost to the root.

    In a container without a cgroup namespace, /proc names a path of the host while /sys/fs/cgroup
    is the container's own group. The path is not there then, but the way up ends where it should.
    """
    for mount, inner in _memberships(root, controller):
        parts = [part for part in PurePosixPath(inner).parts if part not in ("/", "..")]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth])


def _memberships(root: Path, controller: str) -> Iterator[tuple[Path, str]]:
    """Where the cgroups that `controller` may limit are mounted, and which of them is ours."""
    mounts = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, inner = line.split(":", 2)
            if not controllers:  # version 2
                yield mounts, inner
            elif controller in controllers.split(","):  # version 1
                yield from ((mounts / name, inner) for name in {controllers, controller})


def _quota(group: Path) -> float | None:
    """CPUs' worth of time that one cgroup, of either version, grants."""
    with suppress(OSError, ValueError):  # a version 2 without limit says "max"
        quota, period = map(int, (group / "cpu.max").read_text().split())
        return quota / period
    with suppress(OSError, ValueError):
        quota = int((group / "cpu.cfs_quota_us").read_text())
        return quota / int((group / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    return None


def _room(group: Path) -> int | None:
    """Bytes that one cgroup, of either version, still grants.

    What it has in memory of files that nobody uses counts as free: the kernel drops that first.
    """
    for limit, usage, unused in MEMORY_FILES:
        with suppress(OSError, ValueError):  # a version 2 without limit says "max"
            most = int((group / limit).read_text())
            if most >= UNLIMITED:
                return None
            return max(0, most - int((group / usage).read_text()) + _unused(group, unused))
    return None


def _unused(group: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        lines = (group / "memory.stat").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
    return 0
