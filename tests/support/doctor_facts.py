"""Facts about a server on which every check is ok."""

from dataclasses import replace

from hogbatch.doctor.facts import (
    CacheFacts,
    CacheFolder,
    CoreLoad,
    Driver,
    Facts,
    FoundGpu,
    GpuFacts,
    MemoryFacts,
    PrivateNames,
    ProcessorFacts,
    SoftwareFacts,
)
from hogbatch.machine.topology import Topology

GB = 10**9
H100 = FoundGpu("NVIDIA H100", "9.0", 80 * GB)
OPEN = PrivateNames(frozenset(), frozenset())  # nothing to hide


def topology(cores=8, quota=None, mask=None, nodes=1):
    """`cores` physical cores with two logical ones each, n and n + cores, or those in `mask`."""
    allowed = frozenset(range(2 * cores) if mask is None else mask)
    groups = [frozenset({core, core + cores}) & allowed for core in range(cores)]
    per_node = [
        frozenset(core for core in allowed if core % cores * nodes // cores == node)
        for node in range(nodes)
    ]
    return Topology(
        allowed, tuple(filter(None, per_node)), tuple(group for group in groups if group), quota
    )


def folder(files=3, free=100 * GB, writable=True):
    return CacheFolder("/cache/x", files, files * 10**6, writable, free, 10 * GB)


HEALTHY = Facts(
    ProcessorFacts(
        name="AMD EPYC 9654",
        architecture="x86_64",
        features=frozenset({"avx512f", "avx2", "fma", "sse2"}),
        vector_floats=16,
        forced_floats="",
        topology=topology(),
        logical_cores=16,
        nodes=1,
        governors=frozenset({"performance"}),
        frequency_driver="acpi-cpufreq",
        load=CoreLoad(0.1, 0.0, 16),
    ),
    MemoryFacts(
        total=64 * GB,
        free=60 * GB,
        limit=None,
        left=None,
        shm=32 * GB,
        memfd_error="",
        huge_pages=True,
        transparent="madvise",
        shmem="never",
    ),
    GpuFacts(
        hardware=1,
        driver=Driver("580.65.06", "13.0", (H100,)),
        cupy=("cupy-cuda13x",),
        usable=(H100,),
        reason="",
        memlock=None,
    ),
    CacheFacts(note="", kernels=folder(), data=folder()),
    SoftwareFacts(
        hogbatch="0.1.0",
        python="3.12.3",
        implementation="CPython",
        system="Linux 6.8.0 x86_64",
        versions={
            "numpy": "2.3.1",
            "numba": "0.62.0",
            "llvmlite": "0.45.0",
            "pyzmq": "27.0",
            "msgspec": "0.20",
            "safetensors": "0.6",
            "rich": "15.0",
            "pyarrow": "21.0",
            "scikit-learn": "1.7",
            "tensorboard": "2.21",
            "mlflow": "3.17",
            "wandb": "0.31",
            "cupy-cuda13x": "14.1",
        },
        import_errors={},
        open_files=1024,
        limit_error="",
    ),
)


def with_facts(part, **changes):
    """HEALTHY with other facts in one part, such as "memory"."""
    return replace(HEALTHY, **{part: replace(getattr(HEALTHY, part), **changes)})
