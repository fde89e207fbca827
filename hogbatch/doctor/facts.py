"""Facts about a machine and an installation: the input of all checks.

A fact that could not be read is `Unknown`, with the reason. Sizes are in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hogbatch.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class Unknown:
    """Takes the place of a fact that could not be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """How busy the allowed logical cores were while this process slept, in cores."""

    busy: float  # with other processes
    stolen: float  # by other virtual machines on the same host
    cores: int


@dataclass(frozen=True, slots=True)
class ProcessorFacts:
    """The processor, and what this process may use of it."""

    name: str | Unknown
    architecture: str
    features: frozenset[str] | Unknown  # names of LLVM
    vector_floats: int | Unknown  # floats in a vector of the kernels, unless forced
    forced_floats: str  # the value of HOGBATCH_VECTOR; "" without
    topology: Topology | Unknown
    logical_cores: int | Unknown  # of the machine
    nodes: int | Unknown  # NUMA nodes of the machine
    governors: frozenset[str] | Unknown  # of the allowed cores
    frequency_driver: str | Unknown
    load: CoreLoad | Unknown


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Memory, its limits, and how it can be shared."""

    total: int | Unknown
    free: int | Unknown  # of the machine
    limit: int | Unknown | None  # of the tightest cgroup; None: no limit
    left: int | Unknown | None  # within the limits of the cgroups
    shm: int | Unknown  # size of /dev/shm
    memfd_error: str  # why no shared memory can be created; "" if it can
    huge_pages: bool | Unknown  # whether shared memory could be moved into huge pages
    transparent: str | Unknown  # the settings in /sys/kernel/mm/transparent_hugepage: enabled
    shmem: str | Unknown  # and shmem_enabled


@dataclass(frozen=True, slots=True)
class FoundGpu:
    """A GPU, as the driver or CuPy describes it; "" and 0 where they do not."""

    name: str
    compute_capability: str
    memory: int
    pinning_error: str = ""  # why memory cannot be pinned for it; "" if it can, or was not tried


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver; "" for what it does not report."""

    version: str
    cuda: str  # the newest CUDA that it supports
    devices: tuple[FoundGpu, ...] = ()
    problem: str = ""  # why it does not work; "" if it does


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """GPUs, and the software that uses them."""

    hardware: int | Unknown  # NVIDIA GPUs on the PCI bus
    driver: Driver | Unknown | None  # None: there is none
    cupy: tuple[str, ...] | Unknown  # installed packages of CuPy, such as "cupy-cuda12x"
    usable: tuple[FoundGpu, ...] | Unknown  # by CuPy
    reason: str  # why CuPy cannot use a GPU; "" if it can, or is not installed
    memlock: int | Unknown | None  # limit on locked memory; None: no limit


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A directory of the cache, which may not exist yet."""

    path: str
    files: int
    size: int
    writable: bool
    free: int  # on its disk
    min_free: int  # with less than this, nothing more is stored


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """Directories for compiled kernels and parsed data."""

    note: str | Unknown  # why the usual directory is not used; "" if it is
    kernels: CacheFolder | Unknown
    data: CacheFolder | Unknown


@dataclass(frozen=True, slots=True)
class SoftwareFacts:
    """Versions, and whether the packages can be imported."""

    hogbatch: str | Unknown
    python: str
    implementation: str  # of Python: "CPython"
    system: str
    versions: Mapping[str, str | None]  # of packages; None: not installed
    import_errors: Mapping[str, str]  # of required packages
    open_files: int | Unknown | None  # limit; None: no limit
    limit_error: str  # why a run cannot start on this system; "" if it can


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """What the report must not contain."""

    homes: frozenset[str]  # paths of the home directory
    users: frozenset[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about a machine and an installation."""

    processor: ProcessorFacts
    memory: MemoryFacts
    gpu: GpuFacts
    caches: CacheFacts
    software: SoftwareFacts
