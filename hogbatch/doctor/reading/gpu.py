"""Reads facts about GPUs. `root` replaces / in tests."""

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hogbatch.doctor.facts import Driver, FoundGpu, GpuFacts, Unknown
from hogbatch.doctor.reading.attempt import attempt, read_line
from hogbatch.machine.linux import ROOT, nvidia_driver

if TYPE_CHECKING:
    from hogbatch.kernels.gpu.inspection import GpuInspection

PCI_FOLDER: Final = "sys/bus/pci/devices"
NVIDIA: Final = "0x10de"
DISPLAY: Final = "0x03"  # class of PCI devices: graphics cards, and accelerators without outputs
TIMEOUT: Final = 60.0  # seconds; the first initialization of CUDA on a machine can take many


def read_gpu(root: Path = ROOT) -> GpuFacts:
    """Return facts about GPUs. Starts processes only if there is a driver or CuPy."""
    inspection = attempt(_inspect)
    usable: tuple[FoundGpu, ...] | Unknown = ()
    why, supported = "", 0
    if isinstance(inspection, Unknown):
        usable = inspection
    elif inspection is not None:
        why = inspection.reason
        supported = inspection.driver_cuda if inspection.devices else 0
        usable = tuple(
            FoundGpu(gpu.name, gpu.compute_capability, gpu.memory, gpu.pinning_error)
            for gpu in inspection.devices
        )
    return GpuFacts(
        hardware=attempt(lambda: count_pci_gpus(root)),
        driver=attempt(lambda: read_driver(root, supported)),
        cupy=attempt(_cupy_packages),
        usable=usable,
        reason=why,
        memlock=attempt(_memlock),
    )


def count_pci_gpus(root: Path = ROOT) -> int:
    """Return the number of NVIDIA GPUs on the PCI bus, whether they have a driver or not."""
    folder = root / PCI_FOLDER
    return sum(
        read_line(device / "vendor") == NVIDIA and read_line(device / "class").startswith(DISPLAY)
        for device in folder.iterdir()
    )


def read_driver(root: Path, supported_cuda: int) -> Driver | None:
    """Return what nvidia-smi reports, or what Linux and CuPy know of the driver without it."""
    from hogbatch.kernels.gpu.nvidia_smi import query_driver  # here: its package needs NumPy

    if (found := query_driver()) is not None:
        devices = tuple(FoundGpu(*gpu) for gpu in found.gpus)
        return Driver(found.version, found.cuda, devices, found.problem)
    version = nvidia_driver(root)
    if version is None and not supported_cuda:
        return None
    cuda = f"{supported_cuda // 1000}.{supported_cuda % 1000 // 10}" if supported_cuda else ""
    return Driver(version or "", cuda)


def _inspect() -> "GpuInspection | None":
    from hogbatch.kernels.gpu.inspection import inspect_gpus  # here: it needs NumPy

    return inspect_gpus(TIMEOUT)


def _cupy_packages() -> tuple[str, ...]:
    from hogbatch.kernels.gpu.probe import installed_cupy_packages  # here: it needs msgspec

    return tuple(installed_cupy_packages())


def _memlock() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
