"""Reads the machine and the installation. `root` replaces / in tests."""

import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from hogbatch.cli.doctor.checks import EXTRAS, REQUIRED, Folder, Gpus, UsableGpu
from hogbatch.jit import MAX_CACHE_BYTES, cache_directory
from hogbatch.machine.cachedir import find_cache_root
from hogbatch.machine.environment import installed
from hogbatch.machine.linux import ROOT, nvidia_driver
from hogbatch.machine.printable import printable

LOAD_SECONDS: Final = 0.25  # 25 ticks of the kernel's accounting on most systems
CUDA_SECONDS: Final = 60.0  # the first initialization of CUDA on a machine can take many
CPU_FOLDER: Final = "sys/devices/system/cpu"
HUGE_PAGE_SETTING: Final = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
PCI_FOLDER: Final = "sys/bus/pci/devices"
NVIDIA: Final = "0x10de"
DISPLAY: Final = "0x03"  # class of PCI devices: graphics cards, and accelerators without outputs
KERNEL_SUFFIXES: Final = (".nbc", ".o")  # code compiled by Numba, and micro-kernels
MODULES: Final = {"pyzmq": "zmq"}  # package: its module, if that has another name
LISTED: Final = ("scipy", "pandas", "polars")  # packages that nothing checks
MAX_REASON: Final = 200  # characters


def reason(error: BaseException) -> str:
    """The reason of an exception in one line."""
    if isinstance(error, OSError) and error.strerror:
        prefix = f"{error.filename}: " if error.filename else ""
        return printable(f"{prefix}{error.strerror}", MAX_REASON)
    lines = str(error).strip().splitlines()
    return printable(lines[0] if lines else type(error).__name__, MAX_REASON)


def read_vectors() -> tuple[Mapping[str, bool], int]:
    """The features of the processor, and the floats in a vector of the kernels."""
    import llvmlite.binding as llvm  # here: if it is broken, only this is unknown

    from hogbatch.kernels.cpu.simd import vector_width

    features = llvm.get_host_cpu_features()
    return features, int(vector_width("", features))


def read_governors(cores: frozenset[int], root: Path = ROOT) -> frozenset[str]:
    """The frequency governors of `cores`; most virtual machines have none."""
    files = [root / CPU_FOLDER / f"cpu{core}/cpufreq/scaling_governor" for core in cores]
    return frozenset(file.read_text().strip() for file in files if file.exists())


def frequency_driver(root: Path = ROOT) -> str | None:
    """The driver that sets the frequency of the cores, if there is one."""
    with suppress(OSError):
        return (root / CPU_FOLDER / "cpu0/cpufreq/scaling_driver").read_text().strip()
    return None


def measure_load(
    cores: frozenset[int], root: Path = ROOT, seconds: float = LOAD_SECONDS
) -> tuple[float, float]:
    """How many of `cores` other processes and virtual machines use while this process sleeps."""
    before = _read_ticks(root)
    time.sleep(seconds)
    after = _read_ticks(root)
    used = stolen = 0.0
    for core in cores & before.keys() & after.keys():
        passed = [late - early for early, late in zip(before[core], after[core], strict=True)]
        total = max(1, sum(passed))
        used += max(0, total - passed[3] - passed[4] - passed[7]) / total  # idle, waiting, steal
        stolen += max(0, passed[7]) / total
    return used, stolen


def _read_ticks(root: Path) -> dict[int, list[int]]:
    """The times of each core: user, nice, system, idle, waiting, irq, softirq, steal."""
    lines = (root / "proc/stat").read_text().splitlines()
    found = (re.match(r"cpu(\d+) (.*)", line) for line in lines)
    return {int(match[1]): [int(n) for n in match[2].split()[:8]] for match in found if match}


def try_memfd() -> str | None:
    """Create anonymous shared memory; return why that fails, if it does."""
    try:
        os.close(os.memfd_create("hogbatch-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    except OSError as error:
        return reason(error)
    return None


def try_huge_page() -> bool:
    """Try to move shared memory into a huge page."""
    from hogbatch.store.layout import HUGE_PAGE  # here: these modules need NumPy
    from hogbatch.store.pages import collapse, map_shared

    fd = os.memfd_create("hogbatch-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, HUGE_PAGE)
        return collapse(map_shared(fd, HUGE_PAGE, writable=True))
    finally:
        os.close(fd)


def read_huge_page_setting(root: Path = ROOT) -> str:
    """The chosen one of values such as "always [madvise] never"."""
    text = (root / HUGE_PAGE_SETTING).read_text().strip()
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else text


@cache
def read_gpus() -> Gpus:
    """GPUs and their software. CuPy is tried in a process of its own."""
    from hogbatch.kernels.gpu.inspection import inspect_gpus  # here: these modules need NumPy
    from hogbatch.kernels.gpu.probe import installed_cupy_packages

    cupy = {name: installed(name) for name in installed_cupy_packages()}
    found = inspect_gpus(CUDA_SECONDS)
    devices = found.devices if found is not None else ()
    usable = tuple(UsableGpu(gpu.name, gpu.memory, gpu.pinning_error) for gpu in devices)
    why = found.reason if found is not None else None
    return Gpus(count_pci_gpus(), nvidia_driver(), cupy, usable, why)


def count_pci_gpus(root: Path = ROOT) -> int:
    """The number of NVIDIA GPUs on the PCI bus, with a driver or without."""
    return sum(
        (device / "vendor").read_text().strip() == NVIDIA
        and (device / "class").read_text().startswith(DISPLAY)
        for device in (root / PCI_FOLDER).glob("*")
    )


def read_kernel_folder() -> Folder:
    """The directory of compiled kernels."""
    return read_folder(cache_directory(), KERNEL_SUFFIXES, MAX_CACHE_BYTES)


def read_data_folder() -> Folder:
    """The directory of parsed data."""
    from hogbatch.data.cache import SUFFIX, min_free_bytes  # here: it needs NumPy

    path = find_cache_root().path / "data"
    total = shutil.disk_usage(_existing(path)).total
    return read_folder(path, (SUFFIX,), min_free_bytes(total))


def read_folder(path: Path, suffixes: tuple[str, ...], min_free: int) -> Folder:
    """A directory that may not exist and is not created; only files with `suffixes` count."""
    existing, size = _existing(path), 0
    for file in path.rglob("*"):
        if file.suffix in suffixes:
            with suppress(OSError):  # another process may have removed it
                size += file.stat().st_size
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return Folder(str(path), size, writable, shutil.disk_usage(existing).free, min_free)


def _existing(path: Path) -> Path:
    """The path itself, or the closest directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def read_versions() -> dict[str, str | None]:
    """The versions of packages; None: not installed."""
    optional = [name for names in EXTRAS.values() for name in names]
    return {name: installed(name) for name in (*REQUIRED, *optional, *LISTED)}


def import_errors() -> dict[str, str]:
    """Import the required packages; return why that fails, by package."""
    found = {}
    for package in REQUIRED:
        try:
            import_module(MODULES.get(package, package))
        except Exception as error:  # a broken package may raise anything
            found[package] = reason(error)
    return found
