"""Resources that this process may use, read from Linux: cores, NUMA nodes, SMT, memory, cgroups.

A missing or unreadable file, as in many containers, sets no limit. `root` replaces / so that tests
can simulate machines.
"""

import os
import platform
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hogbatch.machine.topology import Topology, parse_cores

ROOT = Path("/")
MEMORY_FILES = (  # limit, usage, and the key of inactive file pages in memory.stat
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
UNLIMITED = 1 << 60  # bytes; cgroup version 1 represents it by a number near 2^63


def read_topology(root: Path = ROOT) -> Topology:
    """Return the cores that this process may use, with their topology."""
    mask = frozenset(os.sched_getaffinity(0))
    return Topology(mask, _nodes(root, mask), _siblings(root, mask), cpu_quota(root))


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the smallest CPU quota of this cgroup and its ancestors, in CPUs; None: no quota."""
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def total_memory(root: Path = ROOT) -> int:
    """Return the memory of the machine in bytes; OSError or ValueError if Linux does not tell."""
    text = (root / "proc/meminfo").read_text()
    if match := re.search(r"^MemTotal: +(\d+) kB", text, re.MULTILINE):
        return 1024 * int(match[1])
    raise ValueError("/proc/meminfo has no MemTotal")


def free_memory(root: Path = ROOT) -> int:
    """Return the kernel's estimate of the bytes available to programs.

    Without an estimate, return the free memory, not counting reclaimable file pages.
    """
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def address_space_left(root: Path = ROOT) -> int | None:
    """Return the bytes that this process may still map (`ulimit -v`); None: no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    with suppress(OSError, ValueError, IndexError):
        pages = int((root / "proc/self/statm").read_text().split()[0])
        return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))
    return limit


def memory_quota(root: Path = ROOT) -> int | None:
    """Return the bytes left in this cgroup and its ancestors, the smallest; None: no limit."""
    quotas = [
        left for group in _groups(root, "memory") if (left := _memory_left(group)) is not None
    ]
    return min(quotas, default=None)


def processor_name(root: Path = ROOT) -> str:
    """Return the name of the processor, or the architecture if Linux does not report a name."""
    with suppress(OSError):
        for line in (root / "proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def nvidia_driver(root: Path = ROOT) -> str | None:
    """Return the version of NVIDIA's kernel module; None: not loaded, "": without a version."""
    with suppress(OSError):
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
        match = re.search(r"  (\d+[\d.]+)  ", text.partition("\n")[0])
        return match[1] if match else ""
    return None


def nvidia_gpus(root: Path = ROOT) -> tuple[str, ...]:
    """Return the names of the GPUs that NVIDIA's kernel module lists; starts no process."""
    names = list[str]()
    with suppress(OSError):
        for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
            text = file.read_text(errors="replace")
            names += re.findall(r"^Model:\s*(\S.*?)\s*$", text, re.MULTILINE)[:1]
    return tuple(names)


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
    """Return the cores that a file lists; empty if it is missing or invalid."""
    with suppress(OSError, ValueError):
        return frozenset(parse_cores(file.read_text()))
    return frozenset()


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's cgroups, from the innermost to the root.

    In a container without a cgroup namespace, /proc contains a path of the host, while
    /sys/fs/cgroup is the container's own group. The inner directories do not exist then, but the
    last one yielded is the container's.
    """
    for mount, inner in _memberships(root, controller):
        parts = [part for part in PurePosixPath(inner).parts if part not in ("/", "..")]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth])


def _memberships(root: Path, controller: str) -> Iterator[tuple[Path, str]]:
    """Yield the mount point and the path of this process's cgroup for `controller`."""
    mounts = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, inner = line.split(":", 2)
            if not controllers:  # version 2
                yield mounts, inner
            elif controller in controllers.split(","):  # version 1
                yield from ((mounts / name, inner) for name in {controllers, controller})


def _quota(group: Path) -> float | None:
    """Return the CPU quota of one cgroup (version 1 or 2) in CPUs; None: no quota."""
    with suppress(OSError, ValueError):  # version 2 without a limit: "max"
        quota, period = map(int, (group / "cpu.max").read_text().split())
        return quota / period
    with suppress(OSError, ValueError):
        quota = int((group / "cpu.cfs_quota_us").read_text())
        return quota / int((group / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    return None


def _memory_left(group: Path) -> int | None:
    """Return the bytes left in one cgroup (version 1 or 2); None: no limit.

    Inactive file pages count as free, because the kernel reclaims them first.
    """
    for limit, usage, inactive in MEMORY_FILES:
        with suppress(OSError, ValueError):  # version 2 without a limit: "max"
            maximum = int((group / limit).read_text())
            if maximum >= UNLIMITED:
                return None
            used = int((group / usage).read_text()) - _inactive_bytes(group, inactive)
            return max(0, maximum - used)
    return None


def _inactive_bytes(group: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        lines = (group / "memory.stat").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
    return 0
