"""Decides about what was read: values in, verdict out. Nothing here reads the machine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hogbatch.machine.budget import byte_size
from hogbatch.machine.topology import Topology, show_cores, training_threads

INSTRUCTION_SETS: Final = {"avx512f": "AVX-512", "avx2": "AVX2", "fma": "FMA", "neon": "NEON"}
WIDTHS: Final = ("4", "8", "16")  # floats in a vector
# With these drivers, the processor itself raises the frequency under "powersave".
SELF_GOVERNED: Final = ("intel_pstate", "amd-pstate-epp")
MAX_BUSY: Final = 0.2  # fraction of the allowed cores that others may use without a warning
MAX_STOLEN: Final = 0.05
LITTLE_MEMORY: Final = 10**9  # bytes
SHMEM: Final = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
SHMEM_USED: Final = ("always", "within_size", "advise", "force")  # values that allow huge pages
CUDA_OF_DRIVERS: Final = {580: 13, 525: 12}  # first driver that supports a version of CUDA
UNUSED: Final = "training uses the CPU only"
REQUIRED: Final = ("numpy", "numba", "llvmlite", "pyzmq", "msgspec", "safetensors", "rich")
EXTRAS: Final = {  # extra: the packages of which one is enough
    "arrow": ("pyarrow",),
    "sklearn": ("scikit-learn",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "mlflow-skinny"),
    "wandb": ("wandb",),
}


class Status(StrEnum):
    """Says if there is something to do."""

    OK = "ok"
    WARN = "warn"
    UNKNOWN = "unknown"  # what is checked could not be read


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check found, its effect and what to do."""

    status: Status
    value: str
    advice: str | None = None
    command: str | None = None  # that follows the advice, to be copied into a shell


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory of the cache, which may not exist yet. Sizes are in bytes."""

    path: str
    size: int  # of the cached files; 0: there are none
    writable: bool
    free: int  # on its disk
    min_free: int  # with less than this, nothing more is stored


@dataclass(frozen=True, slots=True)
class UsableGpu:
    """A GPU that CuPy can use."""

    name: str
    memory: int  # bytes
    pinning_error: str | None = None  # why memory cannot be pinned for it


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs, and the software that uses them."""

    hardware: int  # NVIDIA GPUs on the PCI bus
    driver: str | None  # version of NVIDIA's kernel module; None: it is not loaded
    cupy: Mapping[str, str | None]  # installed packages of CuPy with their versions
    usable: tuple[UsableGpu, ...] = ()
    reason: str | None = None  # why CuPy, if it is installed, cannot use a GPU

    @property
    def found(self) -> bool:
        """There is a GPU, or the driver of one."""
        return bool(self.hardware or self.usable) or self.driver is not None

    @property
    def cuda(self) -> int | None:
        """The newest CUDA that the driver supports; None if that is not known."""
        major = (self.driver or "").partition(".")[0]
        if not major.isdecimal():
            return None
        return next((cuda for first, cuda in CUDA_OF_DRIVERS.items() if int(major) >= first), 11)


def ok(value: str, advice: str | None = None, command: str | None = None) -> Verdict:
    """Nothing has to be done; advice is optional."""
    return Verdict(Status.OK, value, advice, command)


def warn(value: str, advice: str, command: str | None = None) -> Verdict:
    """Something makes runs slower or impossible; `advice` is the effect and what to do."""
    return Verdict(Status.WARN, value, advice, command)


def processor(
    name: str, features: Mapping[str, bool], floats: int, forced: str, architecture: str
) -> Verdict:
    """Check the vector instructions; `forced` is the value of HOGBATCH_VECTOR."""
    if forced and forced not in WIDTHS:
        return warn(
            f"{name}; HOGBATCH_VECTOR is not 4, 8 or 16",
            "kernels cannot be compiled; remove this variable",
            "unset HOGBATCH_VECTOR",
        )
    sets = [shown for key, shown in INSTRUCTION_SETS.items() if features.get(key)]
    value = f"{name}; {', '.join(sets) or 'no AVX2'}; vectors of {forced or floats} floats"
    if forced and int(forced) != floats:
        return warn(
            f"{value}, forced by HOGBATCH_VECTOR",
            f"kernels are fastest with {floats}; remove this variable",
            "unset HOGBATCH_VECTOR",
        )
    if floats < 8 and architecture == "x86_64":
        return warn(
            value,
            "dense kernels run at half of the speed of AVX2 or less; use a newer processor, or let "
            "the virtual machine use all features of its host (QEMU: -cpu host)",
        )
    return ok(value)


def cores(topology: Topology, logical: int, gpus: int) -> Verdict:
    """Check the affinity mask; `logical` is the number of logical cores of the machine."""
    physical, allowed = len(topology.siblings), len(topology.cores)
    value = f"{physical} cores, {allowed} of {logical} logical cores allowed"
    if len(topology.nodes) > 1:
        value += f", {len(topology.nodes)} NUMA nodes"
    if allowed == 1 and logical > 1:
        return warn(
            value,
            "only one thread trains; start hogbatch without taskset, or request more cores from "
            "the scheduler (Slurm: --cpus-per-task)",
        )
    return ok(f"{value}; training threads: {training_threads(topology.threads, physical, gpus)}")


def quota(topology: Topology) -> Verdict:
    """Check the CPU quota of the cgroup."""
    granted, allowed = topology.quota, len(topology.cores)
    if granted is None:
        return ok("none")
    value = f"the cgroup grants {granted:.2g} of {allowed} logical cores"
    if granted >= allowed:
        return ok(value)
    effect = (
        f"training is suspended {1 - granted:.0%} of the time"
        if granted < 1
        else "threads are not pinned and do not train in teams, so training is slower"
    )
    chosen = show_cores(sorted(topology.cores)[: topology.threads])
    advice = f"{effect}; give the container cores instead of a quota"
    return warn(value, advice, f"docker run --cpuset-cpus {chosen}")


def governor(governors: frozenset[str], driver: str | None) -> Verdict:
    """Check the frequency governors of the allowed cores; most virtual machines have none."""
    value = ", ".join(sorted(governors)) or "none"
    if "powersave" not in governors or driver in SELF_GOVERNED:
        return ok(value)
    return warn(
        value,
        "cores stay at their lowest frequency, so training is several times slower",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    )


def load(busy: float, stolen: float, allowed: int) -> Verdict:
    """Check how many cores others use: processes (`busy`), and virtual machines (`stolen`)."""
    value = f"other processes use {busy:.1f} of {allowed} logical cores"
    if stolen > MAX_STOLEN * allowed:
        return warn(
            f"{value}, other virtual machines {stolen:.1f}",
            "threads wait for cores; use a virtual machine with cores of its own",
        )
    if busy > MAX_BUSY * allowed:
        return warn(
            value,
            "training is slower, and the speeds measured at its start are inexact; end these "
            "processes (top lists them), or choose other cores with taskset",
        )
    return ok(value)


def memory(free: int, total: int, left: int | None) -> Verdict:
    """Check the available memory; `left` is that within the limits of the cgroups, if any."""
    value = f"{byte_size(free)} of {byte_size(total)} available"
    if left is not None:
        value += f", {byte_size(left)} within the cgroup"
    if min(free, free if left is None else left) >= LITTLE_MEMORY:
        return ok(value)
    return warn(
        value,
        "runs that need more are refused; close other programs, or raise the memory limit of the "
        "container",
    )


def shared_memory(error: str | None) -> Verdict:
    """Check that processes can share memory; `error` says why not."""
    if error is None:
        return ok("memfd; the size of /dev/shm does not matter")
    return warn(
        f"memfd_create: {error}",
        "no run with worker processes can start; allow memfd_create(2) in the seccomp profile of "
        "the container",
    )


def huge_pages(moved: bool, setting: str) -> Verdict:
    """Check that shared memory can use huge pages.

    Linux 6.1 or newer moves it there on request. Older versions need the `setting` SHMEM.
    """
    if moved or setting in SHMEM_USED:
        return ok("shared memory uses them")
    return warn(
        f'transparent huge pages of shared memory are "{setting}"',
        "reading rows of large data takes up to a quarter longer; allow huge pages",
        f"echo advise | sudo tee {SHMEM}",
    )


def gpus(gpus: Gpus) -> Verdict:
    """Check the GPUs, and that memory can be pinned for them."""
    if not gpus.usable and gpus.hardware and gpus.driver is None:
        return warn(
            f"{gpus.hardware} without a driver",
            f"{UNUSED}; install the NVIDIA driver, or start the container with GPUs (docker run "
            "--gpus all)",
        )
    if not gpus.usable:
        return ok(f"{gpus.hardware} not used" if gpus.hardware else "none; training uses the CPU")
    value = ", ".join(f"{gpu.name} ({byte_size(gpu.memory)})" for gpu in gpus.usable)
    errors = [gpu.pinning_error for gpu in gpus.usable if gpu.pinning_error]
    if not errors:
        return ok(value)
    return warn(
        f"{value}; memory cannot be pinned: {errors[0]}",
        "transfers to the GPU are slower; raise the limit on locked memory",
        "ulimit -l unlimited  # or docker run --ulimit memlock=-1",
    )


def driver(gpus: Gpus) -> Verdict:
    """Check that there is a CuPy for the NVIDIA driver."""
    if gpus.driver is None:
        return ok("none")
    value = gpus.driver or "unknown version"
    if gpus.cuda is None or gpus.cuda in CUDA_OF_DRIVERS.values():
        return ok(value)
    return warn(value, f"{UNUSED}, because CuPy needs driver {min(CUDA_OF_DRIVERS)} or newer")


def cupy(gpus: Gpus) -> Verdict:
    """Check that one CuPy is installed, for the driver, and can use the GPUs."""
    value = ", ".join(f"{name} {version or ''}".strip() for name, version in gpus.cupy.items())
    install = f"pip install 'hogbatch[cuda{13 if gpus.cuda is None else max(12, gpus.cuda)}]'"
    replace = f"pip uninstall {' '.join(gpus.cupy)}; {install}"
    if len(gpus.cupy) > 1:
        return warn(value, "these packages overwrite each other; install one of them", replace)
    if not gpus.found:
        return ok(f"{value or 'not installed'}; not needed without a GPU")
    if not gpus.cupy:
        older = "; GPUs older than Turing need cuda12" if "13" in install else ""
        return warn("not installed", f"{UNUSED}; install CuPy{older}", install)
    needed = re.fullmatch(r"cupy-cuda(\d+)x", next(iter(gpus.cupy)))
    if needed and gpus.cuda and int(needed[1]) > gpus.cuda:
        return warn(
            f"{value}, but driver {gpus.driver} supports CUDA {gpus.cuda}",
            f"{UNUSED}; install CuPy for the driver, or a newer driver",
            replace,
        )
    return warn(value, f"{UNUSED}: {gpus.reason}") if gpus.reason else ok(value)


def kernels(folder: Folder, note: str | None) -> Verdict:
    """Check that compiled kernels are kept; `note`: why the usual directory is not used."""
    size = f"compiled kernels, {byte_size(folder.size)}" if folder.size else "no compiled kernels"
    value = f"{folder.path}: {size}"
    if note:
        return warn(value, f"kernels may have to be compiled again after a restart; {note}")
    if folder.size:
        return ok(value)
    if folder.writable and folder.free >= folder.min_free:
        return ok(value, "the first run compiles them, which takes up to a minute")
    return warn(
        f"{value}, {_free(folder)}" if folder.writable else f"{folder.path} is not writable",
        "every process of a run compiles all kernels; set HOGBATCH_CACHE to a writable directory "
        "with free space",
    )


def data(folder: Folder) -> Verdict:
    """Check that parsed text files are kept."""
    if folder.free >= folder.min_free:
        return ok(f"{folder.path}: {byte_size(folder.size)}")
    return warn(
        f"{folder.path}: {_free(folder)}",
        "each run parses its text files again; free some space, or use --data-cache with a "
        "directory on another disk",
    )


def _free(folder: Folder) -> str:
    return f"{byte_size(folder.free)} free on its disk"


def packages(versions: Mapping[str, str | None], errors: Mapping[str, str]) -> Verdict:
    """Check the packages that every installation needs; `errors` are those of importing them."""
    if absent := [name for name in REQUIRED if versions.get(name) is None]:
        command = f"pip install {' '.join(absent)}"
        return warn(f"{', '.join(absent)} not installed", "hogbatch cannot train", command)
    if errors:
        return warn(
            "; ".join(f"{name}: {error}" for name, error in errors.items()),
            "hogbatch cannot train; install versions that work together",
            f"pip install --force-reinstall {' '.join(REQUIRED)}",  # so that pip adapts all of them
        )
    return ok(_listed(versions, REQUIRED))


def extras(versions: Mapping[str, str | None]) -> Verdict:
    """List the optional packages."""
    installed = _listed(versions, [name for names in EXTRAS.values() for name in names])
    absent = [extra for extra, names in EXTRAS.items() if not any(map(versions.get, names))]
    if not absent:
        return ok(installed)
    value = f"{installed or 'none'}; not installed: {', '.join(absent)}"
    return ok(value, "optional", f"pip install 'hogbatch[{','.join(absent)}]'")


def _listed(versions: Mapping[str, str | None], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in names if versions.get(name))
