"""Every check: values in, status, value and advice out."""

import pytest

from hogbatch.cli.doctor import checks
from hogbatch.cli.doctor.checks import REQUIRED
from hogbatch.kernels.gpu.probe import Gpu, ProbeResult
from hogbatch.machine.topology import Topology

GB = 10**9
AVX512 = {"avx512f": True, "avx2": True, "fma": True, "neon": False}
UNUSED = ProbeResult(reason="CuPy is not installed")
H100 = ProbeResult((Gpu(0, "NVIDIA H100", 80 * GB),))
UNPINNED = ProbeResult((Gpu(0, "A", GB), Gpu(1, "B", GB, "out of memory")))
VERSIONS = dict.fromkeys(REQUIRED, "1.0")


def topology(mask=range(16), quota=None):
    """A machine of two nodes and 8 physical cores, n and n + 8, of which `mask` is allowed."""
    allowed = frozenset(mask)
    nodes = [frozenset(core for core in allowed if core % 8 // 4 == node) for node in range(2)]
    groups = [frozenset({core, core + 8}) & allowed for core in range(8)]
    return Topology(allowed, tuple(filter(None, nodes)), tuple(filter(None, groups)), quota)


OK_CASES = [
    (checks.processor("EPYC", AVX512, 16, "", "x86_64"), "EPYC; AVX-512, AVX2, FMA; vectors of 16"),
    (checks.processor("Graviton", {"neon": True}, 4, "", "aarch64"), "NEON; vectors of 4 floats"),
    (checks.cores(topology(), 16, 0), "16 of 16 logical cores allowed, 2 NUMA nodes; training thr"),
    (checks.cores(topology([0, 8]), 16, 1), "1 cores, 2 of 16 logical cores allowed; training"),
    (checks.cores(topology([0]), 1, 0), "1 of 1 logical cores"),
    (checks.quota(topology(quota=16.0)), "grants 16 of 16 logical cores"),
    (checks.memory(60 * GB, 64 * GB, None), "60 GB of 64 GB available"),
    (checks.memory(60 * GB, 64 * GB, 3 * GB), "available, 3 GB within the cgroup"),
    (checks.huge_pages(False, "always [advise] never"), "shared memory uses them"),
    (checks.gpus(0, None, UNUSED), "none; training uses the CPU"),
    (checks.gpus(1, "580.65.06", H100), "NVIDIA H100 (80 GB), driver 580.65.06"),
    (checks.kernels("/cache/x", None, None), "/cache/x"),
    (checks.packages(VERSIONS, {}), "numpy 1.0, numba 1.0, llvmlite 1.0"),
]


@pytest.mark.parametrize(("verdict", "value"), OK_CASES)
def test_nothing_to_do(verdict, value):
    assert verdict.status == "ok" and value in verdict.value


WARNINGS = [
    (checks.processor("Old", {}, 4, "", "x86_64"), "no AVX2", "use a newer processor"),
    (checks.processor("EPYC", AVX512, 16, "8", "x86_64"), "of 8 floats, forced", "remove this"),
    (checks.processor("EPYC", AVX512, 16, "x", "x86_64"), "is not 4, 8 or 16", "remove this"),
    (checks.cores(topology([3]), 16, 0), "1 of 16 logical cores", "without taskset"),
    (checks.quota(topology(quota=2.5)), "grants 2.5 of 16", "docker run --cpuset-cpus 0-2"),
    (checks.quota(topology(quota=0.5)), "grants 0.5 of 16", "suspended 50% of the time"),
    (checks.quota(topology(range(128), quota=100.0)), "grants 100 of 128", "not pinned"),
    (checks.memory(GB // 2, 64 * GB, None), "500 MB of 64 GB", "close other programs"),
    (checks.memory(60 * GB, 64 * GB, GB // 4), "250 MB within", "raise the memory limit"),
    (checks.huge_pages(False, "advise [never]"), "[never]", "advise | sudo tee /sys/kernel/mm/"),
    (checks.gpus(2, None, UNUSED), "2 NVIDIA, driver unknown", "install the NVIDIA driver"),
    (checks.gpus(0, "470.1", UNUSED), "driver 470.1; training uses", "CuPy is not installed"),
    (checks.gpus(2, "580", UNPINNED), "cannot be pinned: out of memory", "ulimit -l unlimited"),
    (checks.kernels("/x", "set HOGBATCH_CACHE", None), "/x", "again after a restart; set HOGB"),
    (checks.kernels("/x", "", "disk full"), "/x: disk full", "set HOGBATCH_CACHE"),
    (checks.packages(VERSIONS | {"numba": None}, {}), "numba not inst", "pip install numba"),
    (checks.packages(VERSIONS, {"numba": "bad"}), "numba: bad", "--force-reinstall numpy numba"),
]


@pytest.mark.parametrize(("verdict", "value", "advice"), WARNINGS)
def test_a_warning_says_what_to_do(verdict, value, advice):
    assert verdict.status == "warn" and value in verdict.value
    assert advice in verdict.advice
