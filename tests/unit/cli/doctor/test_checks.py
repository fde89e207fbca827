"""Every check: values in, status, value and advice out."""

from dataclasses import replace

import pytest

from hogbatch.cli.doctor import checks
from hogbatch.cli.doctor.checks import REQUIRED, Folder, Gpus, Status, UsableGpu
from hogbatch.machine.topology import Topology

GB = 10**9
AVX512 = {"avx512f": True, "avx2": True, "fma": True, "neon": False}
NO_GPU = Gpus(0, None, {})
H100 = Gpus(1, "580.65.06", {"cupy-cuda13x": "14.1"}, (UsableGpu("NVIDIA H100", 80 * GB),))
UNUSED = replace(H100, cupy={}, usable=())
FULL = Folder("/cache/x", 3 * 10**6, True, 100 * GB, 10 * GB)
EMPTY = replace(FULL, size=0)
VERSIONS = dict.fromkeys(REQUIRED, "1.0")
EXTRAS = {"pyarrow": "21.0", "scikit-learn": "1.7", "tensorboard": "2.21", "wandb": "0.31"}


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
    (checks.governor(frozenset(), None), "none"),
    (checks.governor(frozenset({"powersave"}), "intel_pstate"), "powersave"),
    (checks.load(3.2, 0.0, 16), "other processes use 3.2 of 16"),
    (checks.memory(60 * GB, 64 * GB, None), "60 GB of 64 GB available"),
    (checks.memory(60 * GB, 64 * GB, 3 * GB), "available, 3 GB within the cgroup"),
    (checks.shared_memory(None), "memfd"),
    (checks.huge_pages(False, "advise"), "shared memory uses them"),
    (checks.gpus(NO_GPU), "none; training uses the CPU"),
    (checks.gpus(UNUSED), "1 not used"),
    (checks.gpus(H100), "NVIDIA H100 (80 GB)"),
    (checks.driver(NO_GPU), "none"),
    (checks.driver(H100), "580.65.06"),
    (checks.cupy(replace(NO_GPU, cupy={"cupy": "14.1"})), "cupy 14.1; not needed"),
    (checks.cupy(H100), "cupy-cuda13x 14.1"),
    (checks.cupy(replace(H100, cupy={"cupy-cuda12x": "13"})), "cupy-cuda12x 13"),
    (checks.kernels(FULL, None), "/cache/x: compiled kernels, 3 MB"),
    (checks.kernels(EMPTY, None), "/cache/x: no compiled kernels"),
    (checks.data(FULL), "/cache/x: 3 MB"),
    (checks.packages(VERSIONS, {}), "numpy 1.0, numba 1.0, llvmlite 1.0"),
    (checks.extras(EXTRAS | {"mlflow-skinny": "3.17"}), "mlflow-skinny 3.17, wandb 0.31"),
]


@pytest.mark.parametrize(("verdict", "value"), OK_CASES)
def test_nothing_to_do(verdict, value):
    assert verdict.status is Status.OK and value in verdict.value


WARNINGS = [
    (checks.processor("Old", {}, 4, "", "x86_64"), "no AVX2", "use a newer processor"),
    (checks.processor("EPYC", AVX512, 16, "8", "x86_64"), "of 8 floats, forced", "unset"),
    (checks.processor("EPYC", AVX512, 16, "x", "x86_64"), "is not 4, 8 or 16", "unset"),
    (checks.cores(topology([3]), 16, 0), "1 of 16 logical cores", "without taskset"),
    (checks.quota(topology(quota=2.5)), "grants 2.5 of 16", "docker run --cpuset-cpus 0-2"),
    (checks.quota(topology(quota=0.5)), "grants 0.5 of 16", "suspended 50% of the time"),
    (checks.governor(frozenset({"powersave"}), None), "powersave", "echo performance | sudo tee"),
    (checks.load(3.3, 0.0, 16), "other processes use 3.3 of 16", "end these processes"),
    (checks.load(0.0, 0.2, 2), "other virtual machines 0.2", "cores of its own"),
    (checks.memory(GB // 2, 64 * GB, None), "500 MB of 64 GB", "close other programs"),
    (checks.memory(60 * GB, 64 * GB, GB // 4), "250 MB within", "raise the memory limit"),
    (checks.shared_memory("not permitted"), "memfd_create: not permitted", "seccomp"),
    (checks.huge_pages(False, "never"), '"never"', "echo advise | sudo tee /sys/kernel/mm/"),
    (checks.gpus(Gpus(2, None, {})), "2 without a driver", "install the NVIDIA driver"),
    (
        checks.gpus(
            replace(H100, usable=(UsableGpu("A", GB), UsableGpu("B", GB, "out of memory")))
        ),
        "memory cannot be pinned: out of memory",
        "ulimit -l unlimited",
    ),
    (checks.driver(replace(UNUSED, driver="470.1")), "470.1", "CuPy needs driver 525 or newer"),
    (checks.cupy(UNUSED), "not installed", "older than Turing need cuda12"),
    (checks.cupy(replace(UNUSED, driver="")), "not installed", "pip install 'hogbatch[cuda13]'"),
    (checks.cupy(replace(UNUSED, driver="550.1")), "not installed", "hogbatch[cuda12]"),
    (
        checks.cupy(replace(H100, driver="550.1", reason="an error")),
        "cupy-cuda13x 14.1, but driver 550.1 supports CUDA 12",
        "pip uninstall cupy-cuda13x; pip install 'hogbatch[cuda12]'",
    ),
    (checks.cupy(replace(H100, cupy={"cupy": "1", "cupy-cuda12x": "1"})), "cupy 1, cupy-", "over"),
    (checks.cupy(replace(H100, reason="no GPU is visible")), "14.1", "CPU only: no GPU is visible"),
    (checks.kernels(FULL, "set HOGBATCH_CACHE"), "/cache/x", "again after a restart; set HOGB"),
    (checks.kernels(replace(EMPTY, writable=False), None), "is not writable", "set HOGBATCH_CACHE"),
    (checks.kernels(replace(EMPTY, free=GB), None), "1 GB free on its disk", "with free space"),
    (checks.data(replace(FULL, free=GB)), "1 GB free on its disk", "use --data-cache"),
    (checks.packages(VERSIONS | {"numba": None}, {}), "numba not inst", "pip install numba"),
    (checks.packages(VERSIONS, {"numba": "bad"}), "numba: bad", "--force-reinstall numpy numba"),
]


@pytest.mark.parametrize(("verdict", "value", "advice"), WARNINGS)
def test_a_warning_says_what_to_do(verdict, value, advice):
    assert verdict.status is Status.WARN and value in verdict.value
    assert advice in f"{verdict.advice}: {verdict.command}"


def test_missing_extras_come_with_their_command():
    assert checks.extras({}).command == (
        "pip install 'hogbatch[arrow,sklearn,tensorboard,mlflow,wandb]'"
    )
