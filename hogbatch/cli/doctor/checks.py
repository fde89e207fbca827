"""Decides about what was read: values in, verdict out. Nothing here reads the machine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from hogbatch.machine.budget import byte_size
from hogbatch.machine.printable import rounded
from hogbatch.machine.topology import Topology, show_cores, training_threads

if TYPE_CHECKING:
    from hogbatch.kernels.gpu.probe import ProbeResult

INSTRUCTION_SETS: Final = {"avx512f": "AVX-512", "avx2": "AVX2", "fma": "FMA", "neon": "NEON"}
WIDTHS: Final = ("4", "8", "16")  # floats in a vector
LITTLE_MEMORY: Final = 10**9  # bytes
SHMEM: Final = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
SHMEM_USED: Final = ("[always]", "[within_size]", "[advise]", "[force]")  # they allow huge pages
REQUIRED: Final = (
    *("numpy", "numba", "llvmlite", "pyarrow"),
    *("pyzmq", "msgspec", "safetensors", "rich"),
)


class Verdict(NamedTuple):
    """The result of one check; a warning if there is `advice`: its effect, and what to do."""

    value: str
    advice: str = ""
    known: bool = True  # False: what is checked could not be read

    @property
    def status(self) -> str:
        """Says if there is something to do."""
        return ("warn" if self.advice else "ok") if self.known else "unknown"


def processor(
    name: str, features: Mapping[str, bool], floats: int, forced: str, architecture: str
) -> Verdict:
    """Check the vector instructions; `forced` is the value of HOGBATCH_VECTOR."""
    if forced and forced not in WIDTHS:
        advice = "kernels cannot be compiled; remove this variable"
        return Verdict(f"{name}; HOGBATCH_VECTOR is not 4, 8 or 16", advice)
    sets = [shown for key, shown in INSTRUCTION_SETS.items() if features.get(key)]
    value = f"{name}; {', '.join(sets) or 'no AVX2'}; vectors of {forced or floats} floats"
    if forced and int(forced) != floats:
        advice = f"kernels are fastest with {floats}; remove this variable"
        return Verdict(f"{value}, forced by HOGBATCH_VECTOR", advice)
    if floats < 8 and architecture == "x86_64":
        return Verdict(
            value,
            "dense kernels run at half of the speed of AVX2 or less; use a newer processor, or let "
            "the virtual machine use all features of its host (QEMU: -cpu host)",
        )
    return Verdict(value)


def cores(topology: Topology, logical: int, gpus: int) -> Verdict:
    """Check the affinity mask; `logical` is the number of logical cores of the machine."""
    physical, allowed = len(topology.siblings), len(topology.cores)
    value = f"{physical} cores, {allowed} of {logical} logical cores allowed"
    if len(topology.nodes) > 1:
        value += f", {len(topology.nodes)} NUMA nodes"
    if allowed == 1 and logical > 1:
        return Verdict(
            value,
            "only one thread trains; start hogbatch without taskset, or request more cores from "
            "the scheduler (Slurm: --cpus-per-task)",
        )
    return Verdict(
        f"{value}; training threads: {training_threads(topology.threads, physical, gpus)}"
    )


def quota(topology: Topology) -> Verdict:
    """Check the CPU quota of the cgroup."""
    granted, allowed = topology.quota, len(topology.cores)
    if granted is None:
        return Verdict("none")
    value = f"the cgroup grants {rounded(round(granted, 2))} of {allowed} logical cores"
    if granted >= allowed:
        return Verdict(value)
    effect = (
        f"training is suspended {1 - granted:.0%} of the time"
        if granted < 1
        else "threads are not pinned and do not train in teams, so training is slower"
    )
    chosen = show_cores(sorted(topology.cores)[: topology.threads])
    advice = f"give the container cores instead of a quota: docker run --cpuset-cpus {chosen}"
    return Verdict(value, f"{effect}; {advice}")


def memory(free: int, total: int, left: int | None) -> Verdict:
    """Check the available memory; `left` is that within the limits of the cgroups, if any."""
    value = f"{byte_size(free)} of {byte_size(total)} available"
    if left is not None:
        value += f", {byte_size(left)} within the cgroup"
    if min(free, free if left is None else left) >= LITTLE_MEMORY:
        return Verdict(value)
    return Verdict(
        value,
        "runs that need more are refused; close other programs, or raise the memory limit of the "
        "container",
    )


def huge_pages(moved: bool, setting: str) -> Verdict:
    """Check that shared memory can use huge pages.

    Linux 6.1 or newer has moved it there on request. Older versions need the `setting` SHMEM, a
    list with the chosen value in brackets.
    """
    if moved or any(value in setting for value in SHMEM_USED):
        return Verdict("shared memory uses them")
    return Verdict(
        f'transparent huge pages of shared memory are "{setting.strip()}"',
        "reading rows of large data takes up to a quarter longer; allow huge pages: "
        f"echo advise | sudo tee {SHMEM}",
    )


def gpus(hardware: int, driver: str | None, found: "ProbeResult") -> Verdict:
    """Check the GPUs: those on the PCI bus, those that can be used, and pinned memory for them."""
    if not found.devices:
        if not hardware and driver is None:
            return Verdict("none; training uses the CPU")
        value = f"{hardware} NVIDIA, driver {driver or 'unknown'}; training uses the CPU only"
        if driver is None:
            advice = "install the NVIDIA driver, or start the container with GPUs (docker: --gpus)"
            return Verdict(value, advice)
        return Verdict(value, f"{found.reason}; CuPy needs a driver for its version of CUDA")
    value = ", ".join(f"{gpu.name} ({byte_size(gpu.memory)})" for gpu in found.devices)
    if errors := [gpu.pinning_error for gpu in found.devices if gpu.pinning_error]:
        return Verdict(
            f"{value}; memory cannot be pinned: {errors[0]}",
            "transfers to the GPU are slower; raise the limit on locked memory: "
            "ulimit -l unlimited (docker: --ulimit memlock=-1)",
        )
    return Verdict(f"{value}, driver {driver or 'unknown'}")


def kernels(path: str, note: str | None, problem: str | None) -> Verdict:
    """Check that compiled kernels are kept.

    `note`: why the usual directory is not used; `problem`: why kernels cannot be stored.
    """
    if problem is not None:
        return Verdict(
            f"{path}: {problem}",
            "every process of a run compiles all kernels; set HOGBATCH_CACHE to a writable "
            "directory with free space",
        )
    if note:
        return Verdict(path, f"kernels may have to be compiled again after a restart; {note}")
    return Verdict(path)


def packages(versions: Mapping[str, str | None], errors: Mapping[str, str]) -> Verdict:
    """Check the packages that every installation needs; `errors` are those of importing them."""
    if absent := [name for name in REQUIRED if versions.get(name) is None]:
        advice = f"hogbatch cannot train: pip install {' '.join(absent)}"
        return Verdict(f"{', '.join(absent)} not installed", advice)
    if errors:
        return Verdict(
            "; ".join(f"{name}: {error}" for name, error in errors.items()),
            "hogbatch cannot train; install versions that work together: "
            f"pip install --force-reinstall {' '.join(REQUIRED)}",  # so that pip adapts all of them
        )
    return Verdict(", ".join(f"{name} {versions[name]}" for name in REQUIRED))
