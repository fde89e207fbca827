"""Reads facts about the processor. `root` replaces / in tests."""

import os
import platform
import time
from pathlib import Path
from typing import Final

from hogbatch.doctor.facts import CoreLoad, ProcessorFacts, Unknown
from hogbatch.doctor.reading.attempt import attempt, read_line
from hogbatch.jit import VECTOR_VARIABLE
from hogbatch.machine.linux import ROOT, processor_name, read_topology

LOAD_SECONDS: Final = 0.25  # 25 ticks of the kernel's accounting on most systems
CPU_FOLDER: Final = "sys/devices/system/cpu"
NODE_FOLDER: Final = "sys/devices/system/node"

Ticks = tuple[int, int, int]  # busy, idle and stolen, of one core since the machine was started


def read_processor(root: Path = ROOT) -> ProcessorFacts:
    """Return facts about the processor; takes a quarter of a second to measure its load."""
    topology = attempt(lambda: read_topology(root))
    cores = frozenset[int]() if isinstance(topology, Unknown) else topology.cores
    first = min(cores, default=0)
    return ProcessorFacts(
        name=attempt(lambda: processor_name(root)),
        architecture=platform.machine(),
        features=attempt(_features),
        vector_floats=attempt(_vector_floats),
        forced_floats=os.environ.get(VECTOR_VARIABLE, ""),
        topology=topology,
        logical_cores=attempt(_logical_cores),
        nodes=attempt(lambda: count_nodes(root)),
        governors=attempt(lambda: read_governors(cores, root)),
        frequency_driver=attempt(
            lambda: read_line(root / CPU_FOLDER / f"cpu{first}/cpufreq/scaling_driver")
        ),
        load=attempt(lambda: measure_load(cores, root)),
    )


def _features() -> frozenset[str]:
    import llvmlite.binding as llvm  # here: if it is broken, only this fact is unknown

    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


def _vector_floats() -> int:
    import llvmlite.binding as llvm

    from hogbatch.kernels.cpu.simd import vector_width

    return int(vector_width("", llvm.get_host_cpu_features()))


def _logical_cores() -> int:
    if count := os.cpu_count():
        return count
    raise ValueError("Linux does not report the number of logical cores")


def count_nodes(root: Path = ROOT) -> int:
    """Return the number of NUMA nodes with cores."""
    lists = list((root / NODE_FOLDER).glob("node[0-9]*/cpulist"))
    if not lists:
        raise ValueError(f"there are no nodes in /{NODE_FOLDER}")
    return max(1, sum(bool(file.read_text().strip()) for file in lists))


def read_governors(cores: frozenset[int], root: Path = ROOT) -> frozenset[str]:
    """Return the frequency governors of `cores`."""
    files = [root / CPU_FOLDER / f"cpu{core}/cpufreq/scaling_governor" for core in cores]
    found = frozenset(read_line(file) for file in files if file.exists())
    if not found:
        raise ValueError("Linux reports none, as in most virtual machines")
    return found


def measure_load(
    cores: frozenset[int], root: Path = ROOT, seconds: float = LOAD_SECONDS
) -> CoreLoad:
    """Return how busy `cores` are while this process sleeps."""
    before = _read_ticks(root)
    time.sleep(seconds)
    after = _read_ticks(root)
    busy = stolen = 0.0
    measured = 0
    for core in cores & before.keys() & after.keys():
        passed = [late - early for early, late in zip(before[core], after[core], strict=True)]
        if (total := sum(passed)) > 0:
            busy += max(0, passed[0]) / total
            stolen += max(0, passed[2]) / total
            measured += 1
    if not measured:
        raise ValueError("/proc/stat does not report the time of cores")
    return CoreLoad(busy, stolen, measured)


def _read_ticks(root: Path) -> dict[int, Ticks]:
    found = {}
    for line in (root / "proc/stat").read_text().splitlines():
        name, *texts = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            user, nice, system, idle, waiting, irq, softirq, steal = map(int, texts[:8])
            busy = user + nice + system + irq + softirq
            found[int(name[3:])] = (busy, idle + waiting, steal)
    return found
