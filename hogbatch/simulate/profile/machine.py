"""Measures and describes the machine that this process runs on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from hogbatch.kernels.gpu.device import Device, HostDevice
from hogbatch.machine.linux import processor_name, read_topology
from hogbatch.machine.topology import Topology, parse_cores
from hogbatch.simulate.hardware.cpu_cost import CpuCost, barrier_seconds
from hogbatch.simulate.hardware.description import Cpu, Dense, Hashed, ServerGpu, Sparse
from hogbatch.simulate.hardware.gpu_cost import GpuCost
from hogbatch.simulate.hardware.workload import Workload
from hogbatch.simulate.profile import gpu as on_gpu
from hogbatch.simulate.profile.barrier import measure_barrier
from hogbatch.simulate.profile.cpu import Measured, build_tables, measure
from hogbatch.simulate.profile.fit import (
    Probe,
    fit,
    undetermined,
    with_source,
    with_usual_values,
)
from hogbatch.simulate.profile.networks import DENSE, HASHED, SPARSE, Sizes, build
from hogbatch.simulate.profile.start import cpu_at_start, gpu_at_start, host_at_start
from hogbatch.simulate.profile.time_slice import measure_slice
from hogbatch.store.merge import delta
from hogbatch.workers.trainer import Trainer

CORE = Path("/sys/devices/system/cpu/cpu0")


def _figures(section: str, kind: type[Any]) -> tuple[str, ...]:
    """The names of the figures of a section of a description."""
    return tuple(f"{section}.{each.name}" for each in fields(kind) if each.type is float)


MEMORY_SPEEDS: Final = ("private", "shared", "memory", "server", "near")
DENSE_FIGURES: Final = (
    *(f"memory.{name}_speed" for name in MEMORY_SPEEDS),
    *_figures("dense", Dense),
    "memory.barrier_seconds",
)
SPARSE_FIGURES: Final = _figures("sparse", Sparse)
HASHED_FIGURES: Final = _figures("hashed", Hashed)
GPU_FIGURES: Final = (
    "flops",
    "fill_cells",
    "memory_speed",
    "step_seconds",
    "launch_seconds",
    "score_seconds",
    "value_seconds",
    "cell_seconds",
    "touched_seconds",
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    networks: int | None = None  # of each kind; None: all
    batches: tuple[int, ...] = (1, 4, 16, 64, 256)
    seconds: float = 0.02  # of one repetition
    rows: float = 1.0  # fraction of the usual rows
    passes: int = 2  # over all networks, because the speed of a virtual machine changes


QUICK: Final = Effort(1, (4, 64), 0.001, 0.02, 1)
FULL: Final = Effort(seconds=0.01)

Report = Callable[[str], None]
Fitted = TypeVar("Fitted", Cpu, ServerGpu)


def describe_cpu(effort: Effort, source: str, report: Report) -> tuple[Cpu, list[Probe]]:
    """Measure the CPU; return its description, and the probes it was fitted to."""
    topology = read_topology()
    threads, cores = topology.threads, min(len(topology.siblings), topology.threads)
    cpu = cpu_at_start(processor_name(), threads, cores, min(cores, cores_per_cache(CORE)), source)
    private, shared = _cache_size(2), _cache_size(3)
    time_slice = measure_slice()
    if time_slice is None:
        cpu = with_source(cpu, (), "slice_seconds", "assumed: a tick of Linux with CONFIG_HZ=250")
    cpu = replace(
        cpu,
        slice_seconds=time_slice or cpu.slice_seconds,
        memory=replace(
            cpu.memory,
            private_cache=private or cpu.memory.private_cache,
            shared_cache=shared or cpu.memory.shared_cache,
            copy_speed=on_gpu.measure_transfers(HostDevice(), delta).link_speed,
        ),
    )
    probes: dict[tuple[Sizes, ...], list[Probe]] = {DENSE: [], SPARSE: [], HASHED: []}
    for number in range(effort.passes):
        for kind in probes:
            for sizes in kind[: effort.networks]:
                report(f"measuring {sizes.name}, pass {number + 1} of {effort.passes}")
                probes[kind] += _cpu_probes(sizes, threads, effort)
        probes[DENSE] += _barrier_probes(topology, cores, effort)
    probes = {kind: _fastest(found) for kind, found in probes.items()}
    cpu = fit_measured(cpu, DENSE_FIGURES + SPARSE_FIGURES, probes[DENSE] + probes[SPARSE])
    cpu = _limited(fit_measured(cpu, HASHED_FIGURES, probes[HASHED]))
    found = [probe for measured in probes.values() for probe in measured]
    if threads > 1:
        _report_missing(found, threads, report)
    return cpu, found


def fit_measured(start: Fitted, figures: Sequence[str], probes: Sequence[Probe]) -> Fitted:
    """Fit `figures` to `probes`; those that no probe determines keep their value and say so."""
    fitted = fit(start, figures, probes)
    return with_usual_values(fitted, start, undetermined(start, fitted, figures, probes))


def _report_missing(probes: Sequence[Probe], threads: int, report: Report) -> None:
    """Report that probes of several threads are missing, if other processes interrupted them."""
    alone, together = (
        sum(probe.name.endswith(_threads(count)) for probe in probes) for count in (1, threads)
    )
    if together < alone:
        report(
            f"{alone - together} of {alone} probes of {threads} threads are missing, because other "
            "processes interrupted them; measure again when the machine is idle"
        )


def _threads(count: int) -> str:
    return f", {count} threads"


def _cpu_probes(sizes: Sizes, threads: int, effort: Effort) -> Iterator[Probe]:
    """Measure a network with all batch sizes, on one thread and on all threads together."""
    probe = build(sizes, effort.rows)
    workload = probe.workload
    for batch in effort.batches:
        for together in sorted({1, threads}):
            measured = measure(probe, batch, together, effort.seconds)
            if measured is None:
                continue
            name = f"{sizes.name}, {batch} rows{_threads(together)}"
            predict = partial(_cpu_seconds, workload, batch, together, measured)
            yield Probe(name, measured.seconds, predict)
    if sizes.hashed:
        predict = partial(_table_seconds, workload)
        yield Probe(f"{sizes.name}, hash tables", build_tables(probe)[1], predict)


def _barrier_probes(topology: Topology, cores: int, effort: Effort) -> Iterator[Probe]:
    """Measure the barrier of a team with a thread on each of `cores` physical cores."""
    first = sorted(min(siblings) for siblings in topology.siblings)[:cores]
    if (seconds := measure_barrier(first, effort.seconds)) is not None:
        yield Probe(f"barrier of {cores} cores", seconds, partial(_barrier_seconds, cores))


def _barrier_seconds(members: int, cpu: Cpu) -> float:
    near = min(members, cpu.cores_per_cache)
    return barrier_seconds(_limited(cpu).memory, near - 1, members - near)


def _table_seconds(workload: Workload, cpu: Cpu) -> float:
    return CpuCost(cpu, workload, 1).rebuild_seconds(workload.layers[-1].width)


def _fastest(probes: Sequence[Probe]) -> list[Probe]:
    """The fastest of the probes with the same name, because other processes only slow down."""
    fastest: dict[str, Probe] = {}
    for probe in probes:
        known = fastest.get(probe.name, probe)
        fastest[probe.name] = min(known, probe, key=lambda one: one.seconds)
    return list(fastest.values())


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
    if memory.shared_speed > memory.private_speed:
        text = "limited to private_speed; the probes suggest more"
        cpu = with_source(cpu, ("memory",), "shared_speed", text)
    shared = min(memory.shared_speed, memory.private_speed)
    far = memory.near_speed / 2
    return replace(cpu, memory=replace(cpu.memory, shared_speed=shared, far_speed=far))


def describe_gpu(
    device: Device, start: ServerGpu, cpu: Cpu, effort: Effort, sizes: Sequence[int], report: Report
) -> tuple[ServerGpu, list[Probe]]:
    """Measure a device with batches of `sizes` rows; `start` is its description so far."""
    probes: list[Probe] = []
    speeds = on_gpu.measure_transfers(device, delta)
    start = replace(start, **speeds._asdict())
    for kind in (DENSE[1:], SPARSE[1:4], HASHED[:1]):
        for network in kind[: effort.networks]:
            report(f"measuring {network.name} on {device.name}")
            probe = build(network, effort.rows)
            trainer = Trainer(device, probe.assignment)
            for rows in sizes:
                if rows <= probe.workload.rows:
                    predict = partial(_gpu_seconds, cpu, probe.workload, rows)
                    name = f"{network.name}, {rows} rows, {device.name}"
                    probes.append(Probe(name, trainer.seconds(rows), predict))
    return fit_measured(start, GPU_FIGURES, probes), probes


def _gpu_seconds(cpu: Cpu, workload: Workload, rows: int, gpu: ServerGpu) -> float:
    return GpuCost(gpu, cpu, replace(workload, may_densify=False)).train_seconds(rows)


def describe_host(
    cpu: Cpu, effort: Effort, source: str, report: Report
) -> tuple[ServerGpu, list[Probe]]:
    """Measure `gpu:host`."""
    sizes = (16, 128, 1024) if effort.networks is None else (16, 64)
    return describe_gpu(on_gpu.ComputingHost(), host_at_start(source), cpu, effort, sizes, report)


def describe_cuda(
    ordinal: int, cpu: Cpu, effort: Effort, source: str, report: Report
) -> tuple[ServerGpu, list[Probe]]:
    """Measure GPU number `ordinal`, through CuPy."""
    from hogbatch.kernels.gpu.cuda_device import CudaDevice

    device = CudaDevice(ordinal)
    device.enter()
    sizes = (16, 64, 256, 1024, 4096, 16384) if effort.networks is None else (16, 64)
    start = gpu_at_start(ordinal, device.model, source)
    return describe_gpu(device, start, cpu, effort, sizes, report)


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
