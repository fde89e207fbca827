"""Every check: facts in, status, value and advice out."""

from dataclasses import fields, replace

import pytest

from hogbatch.doctor.checks import CHECKS, check
from hogbatch.doctor.facts import CoreLoad, Driver, Facts, FoundGpu, Unknown
from hogbatch.doctor.verdict import Status
from tests.support.doctor_facts import GB, H100, HEALTHY, folder, topology, with_facts

NO_FACT = Unknown("permission denied")
NO_GPU = {"hardware": 0, "driver": None, "cupy": (), "usable": ()}
OLD_GPU = FoundGpu("Tesla V100", "7.0", 16 * GB)


def verdict(name, facts):
    (found,) = [each.verdict for each in check(facts) if each.name == name]
    return found


def versions(**changes):
    return {"versions": {**HEALTHY.software.versions, **changes}}


def test_a_healthy_server_has_no_warning():
    assert {each.verdict.status for each in check(HEALTHY)} == {Status.OK}


def test_names_of_checks_are_unique():
    names = [name for checks in CHECKS.values() for name in checks]
    assert len(set(names)) == len(names)


OK_CASES = [
    ("model", "processor", {}, "AMD EPYC 9654"),
    ("vectors", "processor", {}, "AVX-512, AVX2, FMA; vectors of 16 floats"),
    (
        "vectors",
        "processor",
        {"architecture": "aarch64", "features": frozenset({"neon"}), "vector_floats": 4},
        "NEON; vectors of 4 floats",
    ),
    ("vectors", "processor", {"forced_floats": "16"}, "vectors of 16 floats"),
    (
        "cores",
        "processor",
        {},
        "8 cores, 16 logical cores allowed (of 16); 8 training threads",
    ),
    (
        "cores",
        "processor",
        {"topology": topology(mask=[0, 8]), "logical_cores": NO_FACT},
        "1 core, 2 logical cores allowed; 1 training thread",
    ),
    ("cores", "processor", {"topology": topology(1, mask=[0]), "logical_cores": 1}, "1 core, 1"),
    ("CPU quota", "processor", {}, "none"),
    ("CPU quota", "processor", {"topology": topology(quota=16.0)}, "grants 16 of 16 logical cores"),
    ("NUMA", "processor", {}, "1 node"),
    (
        "NUMA",
        "processor",
        {"topology": topology(nodes=2), "nodes": 2},
        "2 nodes; shared memory is spread over them",
    ),
    (
        "NUMA",
        "processor",
        {"topology": topology(nodes=2, mask=[0, 1]), "nodes": 2},
        "1 of 2 nodes allowed",
    ),
    (
        "governor",
        "processor",
        {"governors": frozenset({"powersave"}), "frequency_driver": "intel_pstate"},
        "powersave",
    ),
    ("load", "processor", {"load": CoreLoad(3.2, 0.0, 16)}, "other processes use 3.2 of 16"),
    ("memory", "memory", {}, "60 GB of 64 GB available"),
    (
        "memory",
        "memory",
        {"limit": 4 * GB, "left": 3 * GB},
        "60 GB of 64 GB available; 3 GB of 4 GB left in the cgroup",
    ),
    ("memory", "memory", {"total": NO_FACT, "left": NO_FACT}, "60 GB available"),
    ("shared memory", "memory", {}, "memfd; /dev/shm (32 GB) is not used"),
    ("shared memory", "memory", {"shm": NO_FACT}, "memfd; /dev/shm is not used"),
    ("huge pages", "memory", {"transparent": "never"}, "(enabled=never, shmem_enabled=never)"),
    ("huge pages", "memory", {"huge_pages": False, "shmem": "advise"}, "shared memory uses them"),
    ("GPUs", "gpu", {}, "NVIDIA H100 (compute capability 9.0, 80 GB)"),
    ("GPUs", "gpu", {"usable": (H100, H100)}, "2 x NVIDIA H100 ("),
    ("GPUs", "gpu", {"usable": ()}, "NVIDIA H100 (compute capability 9.0, 80 GB); not used"),
    ("GPUs", "gpu", {"usable": (FoundGpu("GPU", "", 0),)}, "GPU"),
    ("GPUs", "gpu", NO_GPU, "none; training uses the CPU"),
    ("driver", "gpu", {}, "580.65.06, CUDA 13.0"),
    ("driver", "gpu", {"driver": Driver("", "")}, "unknown version, CUDA unknown"),
    ("driver", "gpu", NO_GPU, "none; not needed without a GPU"),
    (
        "driver",
        "gpu",
        NO_GPU | {"driver": Driver("", "", problem="No devices were found")},
        "No devices were found; not needed",
    ),
    ("CuPy", "gpu", {}, "cupy-cuda13x 14.1"),
    ("CuPy", "gpu", NO_GPU, "not installed; not needed without a GPU"),
    ("CuPy", "gpu", NO_GPU | {"cupy": ("cupy-cuda12x",)}, "cupy-cuda12x; not needed"),
    (
        "CuPy",
        "gpu",
        NO_GPU | {"driver": Driver("", "", problem="No devices were found")},
        "not installed; not needed",
    ),
    ("CuPy", "gpu", {"cupy": ("cupy-cuda12x",)}, "cupy-cuda12x"),  # newer drivers support it
    ("CuPy", "gpu", {"cupy": ("cupy",)}, "cupy"),  # built from source
    ("pinning", "gpu", {}, "memory can be pinned (limit on locked memory: none)"),
    ("pinning", "gpu", {"memlock": 65536}, "can be pinned (limit on locked memory: 65.5 kB)"),
    ("pinning", "gpu", NO_GPU | {"memlock": NO_FACT}, "not tried without a usable GPU (limit on"),
    ("kernels", "caches", {}, "/cache/x: compiled kernels, 3 MB"),
    ("kernels", "caches", {"kernels": folder(free=0, writable=False)}, "compiled kernels"),
    ("kernels", "caches", {"kernels": folder(files=0)}, "/cache/x: no compiled kernels"),
    ("data", "caches", {}, "/cache/x: 3 files, 3 MB"),
    ("data", "caches", {"data": folder(files=1)}, "/cache/x: 1 file, 1 MB"),
    ("Python", "software", {}, "CPython 3.12.3"),
    ("packages", "software", {}, "NumPy 2.3.1, Numba 0.62.0, llvmlite 0.45.0, pyzmq 27.0"),
    ("arrow", "software", {}, "PyArrow 21.0"),
    ("arrow", "software", versions(pyarrow=None), "PyArrow is not installed; reads tables"),
    ("sklearn", "software", versions(**{"scikit-learn": None}), "scikit-learn is not installed"),
    ("open files", "software", {}, "1024"),
    ("open files", "software", {"open_files": None}, "no limit"),
]


@pytest.mark.parametrize(("name", "part", "changes", "value"), OK_CASES)
def test_nothing_to_do(name, part, changes, value):
    found = verdict(name, with_facts(part, **changes))
    assert found.status is Status.OK, found
    assert value in found.value


WARNINGS = [
    (
        "vectors",
        "processor",
        {"features": frozenset({"sse2"}), "vector_floats": 4},
        "no AVX2; vectors of 4 floats",
        "use a newer processor",
    ),
    (
        "vectors",
        "processor",
        {"forced_floats": "8"},
        "forces vectors of 8",
        "unset HOGBATCH_VECTOR",
    ),
    ("vectors", "processor", {"forced_floats": "x"}, "is not 4, 8 or 16", "unset HOGBATCH_VECTOR"),
    (
        "cores",
        "processor",
        {"topology": topology(mask=[3])},
        "1 core, 1 logical core allowed (of 16): core 3",
        "only one thread trains; start hogbatch without taskset",
    ),
    (
        "CPU quota",
        "processor",
        {"topology": topology(quota=2.5)},
        "the cgroup grants 2.5 of 16 logical cores",
        "docker run --cpuset-cpus 0-2",
    ),
    (
        "CPU quota",
        "processor",
        {"topology": topology(quota=0.5)},
        "the cgroup grants 0.5 of 16 logical cores",
        "training is suspended 50% of the time",
    ),
    (
        "governor",
        "processor",
        {"governors": frozenset({"powersave"})},
        "powersave",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    ),
    (
        "governor",
        "processor",
        {"governors": frozenset({"powersave", "performance"}), "frequency_driver": NO_FACT},
        "performance powersave",
        "choose another governor",
    ),
    (
        "load",
        "processor",
        {"load": CoreLoad(3.3, 0.0, 16)},
        "other processes use 3.3 of 16 logical cores",
        "end these processes",
    ),
    (
        "load",
        "processor",
        {"load": CoreLoad(0.0, 0.2, 2)},
        "other virtual machines 0.2",
        "cores of its own",
    ),
    ("memory", "memory", {"free": GB // 2}, "500 MB of 64 GB available", "close other programs"),
    (
        "memory",
        "memory",
        {"limit": GB, "left": GB // 4},
        "250 MB of 1 GB left in the cgroup",
        "raise the memory limit",
    ),
    (
        "shared memory",
        "memory",
        {"memfd_error": "Operation not permitted"},
        "memfd_create: Operation not permitted",
        "seccomp",
    ),
    (
        "huge pages",
        "memory",
        {"huge_pages": False},
        'transparent huge pages of shared memory are "never"',
        "allow huge pages: echo advise | sudo tee "
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    ),
    ("huge pages", "memory", {"huge_pages": False, "shmem": "deny"}, '"deny"', "echo advise"),
    (
        "GPUs",
        "gpu",
        {"hardware": 2, "driver": None, "usable": (), "cupy": ()},
        "2 NVIDIA GPUs without a driver",
        "install the NVIDIA driver",
    ),
    (
        "driver",
        "gpu",
        {"driver": Driver("470.1", "11.4", (H100,)), "usable": ()},
        "470.1, CUDA 11.4",
        "because CuPy needs CUDA 12; install a newer NVIDIA driver",
    ),
    (
        "driver",
        "gpu",
        {"driver": Driver("", "", problem="Driver/library version mismatch")},
        "Driver/library version mismatch",
        "restart the machine",
    ),
    (
        "CuPy",
        "gpu",
        {"cupy": (), "usable": ()},
        "not installed",
        "training uses the CPU only; install CuPy: pip install 'hogbatch[cuda13]'",
    ),
    (
        "CuPy",
        "gpu",
        {"cupy": (), "usable": (), "driver": Driver("550.1", "12.4", (H100,))},
        "not installed",
        "pip install 'hogbatch[cuda12]'",
    ),
    (  # CUDA 13 does not support this GPU, although the driver supports CUDA 13
        "CuPy",
        "gpu",
        {"cupy": (), "usable": (), "driver": Driver("580.1", "13.0", (OLD_GPU,))},
        "not installed",
        "pip install 'hogbatch[cuda12]'",
    ),
    (
        "CuPy",
        "gpu",
        {"cupy": (), "usable": (), "driver": Driver("", "", (FoundGpu("GPU", "", 0),))},
        "not installed",
        "pip install 'hogbatch[cuda13]'",
    ),
    (
        "CuPy",
        "gpu",
        {"driver": Driver("550.1", "12.4", (H100,)), "usable": (), "reason": "an error"},
        "cupy-cuda13x 14.1 needs CUDA 13, the driver supports 12",
        "pip uninstall cupy-cuda13x; pip install 'hogbatch[cuda12]'",
    ),
    (
        "CuPy",
        "gpu",
        {"cupy": ("cupy-cuda12x", "cupy-cuda13x")},
        "cupy-cuda12x, cupy-cuda13x 14.1",
        "pip uninstall cupy-cuda12x cupy-cuda13x; pip install 'hogbatch[cuda13]'",
    ),
    (
        "CuPy",
        "gpu",
        {"usable": (), "reason": "no GPU is visible to this process"},
        "cupy-cuda13x 14.1",
        "training uses the CPU only: no GPU is visible to this process",
    ),
    (
        "pinning",
        "gpu",
        {"usable": (H100, replace(H100, pinning_error="out of memory")), "memlock": 65536},
        "memory cannot be pinned: out of memory (limit on locked memory: 65.5 kB)",
        "transfers to the GPU are slower; raise the limit",
    ),
    ("kernels", "caches", {"note": "set HOGBATCH_CACHE"}, "/cache/x", "set HOGBATCH_CACHE"),
    ("kernels", "caches", {"kernels": NO_FACT}, "permission denied", "every process of a run"),
    (
        "kernels",
        "caches",
        {"kernels": folder(files=0, writable=False)},
        "/cache/x is not writable",
        "set HOGBATCH_CACHE to a writable directory",
    ),
    (
        "kernels",
        "caches",
        {"kernels": folder(files=0, free=GB)},
        "/cache/x: 1 GB free on its disk",
        "free some space",
    ),
    ("data", "caches", {"data": folder(free=GB)}, "1 GB free", "use --data-cache"),
    ("Python", "software", {"implementation": "PyPy"}, "PyPy 3.12.3", "use CPython 3.11"),
    (
        "packages",
        "software",
        versions(numba=None),
        "numba not installed",
        "install what is missing: pip install numba",
    ),
    (
        "packages",
        "software",
        {"import_errors": {"numba": "Numba needs NumPy 2.3 or less"}},
        "numba: Numba needs NumPy 2.3 or less",
        "install versions that work together: pip install --force-reinstall numpy numba",
    ),
    ("open files", "software", {"limit_error": "got a limit of 8"}, "too low", "a limit of 8"),
]


@pytest.mark.parametrize(("name", "part", "changes", "value", "advice"), WARNINGS)
def test_a_warning_says_what_to_do(name, part, changes, value, advice):
    found = verdict(name, with_facts(part, **changes))
    assert found.status is Status.WARN, found
    assert value in found.value
    assert advice in found.sentence


UNKNOWNS = [
    ("model", "processor", "name"),
    ("vectors", "processor", "features"),
    ("vectors", "processor", "vector_floats"),
    ("cores", "processor", "topology"),
    ("CPU quota", "processor", "topology"),
    ("NUMA", "processor", "topology"),
    ("NUMA", "processor", "nodes"),
    ("governor", "processor", "governors"),
    ("load", "processor", "load"),
    ("memory", "memory", "free"),
    ("huge pages", "memory", "huge_pages"),
    ("driver", "gpu", "driver"),
    ("CuPy", "gpu", "cupy"),
    ("CuPy", "gpu", "usable"),
    ("data", "caches", "data"),
    ("open files", "software", "open_files"),
]


@pytest.mark.parametrize(("name", "part", "fact"), UNKNOWNS)
def test_a_fact_that_cannot_be_read_is_unknown_with_the_reason(name, part, fact):
    found = verdict(name, with_facts(part, **{fact: NO_FACT}))
    assert (found.status, found.value) == (Status.UNKNOWN, "unknown: permission denied")


def test_a_driver_that_does_not_work_hides_the_gpus():
    broken = Driver("", "", problem="mismatch")
    found = verdict("GPUs", with_facts("gpu", driver=broken, usable=(), hardware=NO_FACT))
    assert (found.status, found.value) == (Status.UNKNOWN, "unknown: the driver does not work")


def test_huge_pages_are_unknown_if_the_kernel_has_no_setting():
    found = verdict("huge pages", with_facts("memory", huge_pages=False, shmem=NO_FACT))
    assert found.status is Status.UNKNOWN
    assert "shared memory uses small pages" in found.value


def test_no_check_fails_when_nothing_is_known():
    parts = {}
    for part in fields(Facts):
        healthy = getattr(HEALTHY, part.name)
        readable = [each.name for each in fields(healthy) if "Unknown" in str(each.type)]
        parts[part.name] = replace(healthy, **dict.fromkeys(readable, NO_FACT))
    statuses = {each.name: each.verdict.status for each in check(Facts(**parts))}
    known = {"shared memory", "pinning", "Python", "packages", "arrow", "sklearn", "trackers"}
    assert {name for name, status in statuses.items() if status is Status.OK} == known
    assert {name for name, status in statuses.items() if status is Status.WARN} == {"kernels"}


def test_the_first_run_is_announced_without_a_warning():
    found = verdict("kernels", with_facts("caches", kernels=folder(files=0)))
    assert "takes up to a minute" in found.advice


def test_one_package_of_a_tracker_is_enough():
    installed = versions(**{"mlflow": None, "mlflow-skinny": "3.17", "wandb": None})
    found = verdict("trackers", with_facts("software", **installed))
    assert found.value == "tensorboard 2.21, mlflow-skinny 3.17; not installed: wandb"
    assert found.command == "pip install 'hogbatch[wandb]'"


def test_a_missing_extra_comes_with_its_command():
    found = verdict("arrow", with_facts("software", **versions(pyarrow=None)))
    assert found.command == "pip install 'hogbatch[arrow]'"
