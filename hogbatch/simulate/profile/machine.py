"""Measures and describes the machine that this process runs on."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from msgspec import structs

from hogbatch.kernels.gpu.device import Device, HostDevice
from hogbatch.machine.linux import processor_name, read_topology
from hogbatch.machine.topology import parse_cores
from hogbatch.simulate.hardware.cpu_cost import CpuCost
from hogbatch.simulate.hardware.description import (
    Cpu,
    Dense,
    Hashed,
    Section,
    ServerGpu,
    Sparse,
    read_server,
)
from hogbatch.simulate.hardware.estimates import Positive
from hogbatch.simulate.hardware.gpu_cost import HAND_OVER, GpuCost
from hogbatch.simulate.hardware.workload import Workload
from hogbatch.simulate.profile.cpu import Measured, build_tables, measure
from hogbatch.simulate.profile.fit import NOT_MEASURED, Probe, fit
from hogbatch.simulate.profile.networks import DENSE, HASHED, SPARSE, Sizes, build
from hogbatch.workers.trainer import Trainer

REPETITIONS = 3  # the fastest counts, because noise only slows down
LARGE, SMALL = 1 << 22, 1 << 8  # floats; of transfers


def measure_transfers(device: Device) -> dict[str, float]:
    """Measure transfers and the operations of a merge.

    Returns the figures of a description, in bytes per second and seconds.
    """
    nbytes = 4 * LARGE
    pulled, params, base, seen, change = (device.zeros(LARGE, np.float32) for _ in range(5))
    host, (shared, mapped) = device.pinned(LARGE, np.float32), device.visible(LARGE, np.float32)
    host[:] = 0
    finite = device.zeros(1, np.float32)
    exchanged = pulled, params, base, seen, change, finite

    def timed(work: Callable[[], None]) -> float:
        work()
        return min(device.measure(work) for _ in range(REPETITIONS))

    latency = timed(lambda: device.copy_into(pulled[:SMALL], host[:SMALL]))
    down = timed(lambda: device.to_host(change, host))
    up = timed(lambda: device.copy_into(pulled, shared))
    add = timed(lambda: device.kernels.add(0.5, 0.0, seen, change, mapped, pulled))
    hand_over = timed(lambda: device.kernels.hand_over(*exchanged))
    return {
        "exchange_speed": HAND_OVER * nbytes / hand_over,
        "link_speed": 2 * nbytes / (down + up),
        "link_seconds": latency,
        "mapped_speed": 2 * nbytes / add,
    }


CORE: Final = Path("/sys/devices/system/cpu/cpu0")
USUAL: Final = "epyc-2cores"  # the description from whose figures of CPU and host a fit starts
USUAL_GPU: Final = "h200-16cores"
PRECISION: Final = "tf32"  # of matrix products on a GPU: the default of training
BATCHES: Final = (1, 8, 64, 256)  # rows
SECONDS: Final = 0.01  # of one repetition
BATCHES_ON_HOST: Final[tuple[int, ...]] = (16, 128, 1024)
BATCHES_ON_GPU: Final = (16, 64, 256, 1024, 4096, 16384)
ON_GPU: Final = (*DENSE[1:4], *SPARSE[1:3], HASHED[0])  # the networks that are measured on a GPU


def _figures(kind: type[Section], prefix: str = "") -> tuple[str, ...]:
    """The names of the figures of a section of a description."""
    figures = structs.fields(kind)
    return tuple(prefix + each.name for each in figures if each.type == Positive)


MEMORY_SPEEDS: Final = ("private", "shared", "memory", "server", "near")
CPU_FIGURES: Final = (
    *(f"memory.{name}_speed" for name in MEMORY_SPEEDS),
    *_figures(Dense, "dense."),
    *_figures(Sparse, "sparse."),
)
HASHED_FIGURES: Final = _figures(Hashed, "hashed.")
Report = Callable[[str], None]
Described = TypeVar("Described", bound=Section)


def describe_cpu(source: str, report: Report) -> tuple[Cpu, list[Probe]]:
    """Measure the CPU; return its description, and the probes it was fitted to."""
    cpu = _cpu_at_start(source)
    missing: list[str] = []

    def probes(kinds: Sequence[Sizes]) -> list[Probe]:
        found: list[Probe] = []
        for sizes in kinds:
            report(f"measuring {sizes.name}")
            found += _cpu_probes(sizes, cpu.threads, missing)
        return found

    dense_and_sparse, hashed = probes(DENSE) + probes(SPARSE), probes(HASHED)
    if missing:
        report(
            f"{len(missing)} probes of several threads are missing, because other processes "
            "interrupted them; measure again when the machine is idle"
        )
    cpu = fit(cpu, CPU_FIGURES, dense_and_sparse)
    return _limited(fit(cpu, HASHED_FIGURES, hashed)), dense_and_sparse + hashed


def _cpu_at_start(source: str) -> Cpu:
    """The counts of this machine and the speed of copies, and usual values of other figures."""
    usual, topology = read_server(USUAL).cpu, read_topology()
    threads, cores = topology.threads, min(len(topology.siblings), topology.threads)
    memory = structs.replace(
        _unmeasured(usual.memory, source, "far_speed", "barrier_seconds"),
        private_cache=_cache_size(2) or usual.memory.private_cache,
        shared_cache=_cache_size(3) or usual.memory.shared_cache,
        copy_speed=measure_transfers(HostDevice())["link_speed"],
    )
    return structs.replace(
        _unmeasured(usual, source, "smt_gain", "slice_seconds"),
        model=processor_name(),
        threads=threads,
        cores=cores,
        cores_per_cache=min(cores, cores_per_cache(CORE)),
        memory=memory,
        dense=_unmeasured(usual.dense, source),
        sparse=_unmeasured(usual.sparse, source),
        hashed=_unmeasured(usual.hashed, source),
    )


def _unmeasured(section: Described, source: str, *figures: str) -> Described:
    """Return `section` with a new `source`, except for these `figures`."""
    return structs.replace(section, source=source, sources=dict.fromkeys(figures, NOT_MEASURED))


def _cpu_probes(sizes: Sizes, threads: int, missing: list[str]) -> Iterator[Probe]:
    """Measure a network with all batch sizes, on one thread and on all threads together.

    Adds the names of the probes that were not measured to `missing`.
    """
    probe = build(sizes)
    workload = probe.workload
    for batch in BATCHES:
        for together in sorted({1, threads}):
            name = f"{sizes.name}, {batch} rows, {together} threads"
            measured = measure(probe, batch, together, SECONDS)
            if measured is None:
                missing.append(name)
                continue
            predict = partial(_cpu_seconds, workload, batch, together, measured)
            yield Probe(name, measured.seconds, predict)
    if sizes.hashed:
        seconds, outputs = build_tables(probe)[1], workload.layers[-1].width
        name = f"{sizes.name}, hash tables"
        yield Probe(name, seconds, lambda cpu: CpuCost(cpu, workload, 1).rebuild_seconds(outputs))


def _cpu_seconds(
    workload: Workload, batch: int, together: int, measured: Measured, cpu: Cpu
) -> float:
    cost = CpuCost(_limited(cpu), workload, together)
    return cost.train_seconds(batch, round(measured.stored), round(measured.active), measured.found)


def _limited(cpu: Cpu) -> Cpu:
    """`cpu` with speeds in relations that the probes cannot determine.

    far_speed is half of near_speed, and shared_speed at most private_speed.
    """
    memory = cpu.memory
    shared = min(memory.shared_speed, memory.private_speed)
    limited = structs.replace(memory, shared_speed=shared, far_speed=memory.near_speed / 2)
    return structs.replace(cpu, memory=limited)


def describe_gpu(ordinal: int | str, source: str, report: Report) -> tuple[ServerGpu, list[Probe]]:
    """Measure a GPU, or with "host" NumPy on one core in place of one.

    Returns its description, and the probes it was fitted to.
    """
    device: Device = HostDevice()
    usual, sizes = read_server(USUAL).gpus[0], BATCHES_ON_HOST
    if isinstance(ordinal, int):
        from hogbatch.kernels.gpu.cuda_device import CudaDevice

        device, sizes = CudaDevice(ordinal, PRECISION), BATCHES_ON_GPU
        device.enter()
        usual = structs.replace(read_server(USUAL_GPU).gpus[0], ordinal=ordinal, model=device.model)
    speeds = measure_transfers(device)
    start = structs.replace(_unmeasured(usual, source), **speeds)
    probes: list[Probe] = []
    for network in ON_GPU:
        report(f"measuring {network.name} on {device.name}")
        probe = build(network)
        trainer = Trainer(device, probe.assignment)
        for rows in sizes:
            if rows <= probe.workload.rows:
                predict = partial(_gpu_seconds, probe.workload, rows)
                name = f"{network.name}, {rows} rows, {device.name}"
                probes.append(Probe(name, trainer.seconds(rows), predict))
    figures = [name for name in _figures(ServerGpu) if name not in speeds]
    return fit(start, figures, probes), probes


def _gpu_seconds(workload: Workload, rows: int, gpu: ServerGpu) -> float:
    return GpuCost(gpu, workload).train_seconds(rows)


def cores_per_cache(core: Path) -> int:
    """The number of physical cores that share the last cache of `core`, its folder in sysfs."""
    files = sorted(core.glob("cache/index*/shared_cpu_list"))
    if not files:
        return 1
    siblings = core / "topology" / "thread_siblings_list"
    threads = len(parse_cores(siblings.read_text())) if siblings.exists() else 1
    return max(1, len(parse_cores(files[-1].read_text())) // max(1, threads))


def _cache_size(level: int) -> int | None:
    """Bytes of the cache of core 0 at `level`; None if Linux does not report it."""
    for index in CORE.glob("cache/index*"):
        if (index / "level").read_text().strip() == str(level):
            return int((index / "size").read_text().strip().rstrip("K")) * 1024
    return None
