"""Checks of GPUs, driver, CuPy and pinned memory."""

import re
from collections import Counter
from typing import Final

from hogbatch.doctor.facts import Driver, Facts, FoundGpu, Unknown
from hogbatch.doctor.verdict import Verdict, ok, unknown, warn
from hogbatch.machine.budget import byte_size

MIN_CUDA: Final = 12  # there is no CuPy for earlier versions
NEWEST_CUDA: Final = 13
CUDA_13_CAPABILITY: Final = 7.5  # CUDA 13 supports no GPUs with a lower compute capability
UNUSED: Final = "training uses the CPU only"
NONE: Final = "not needed without a GPU"


def check_gpus(facts: Facts) -> Verdict:
    """The GPUs of the server."""
    hardware, driver, usable = facts.gpu.hardware, facts.gpu.driver, facts.gpu.usable
    if usable and not isinstance(usable, Unknown):
        return ok(_listed(usable))
    if isinstance(driver, Driver) and driver.devices:
        return ok(f"{_listed(driver.devices)}; not used")
    if isinstance(hardware, int) and hardware and not driver:
        return warn(
            f"{hardware} NVIDIA GPU{'s' * (hardware > 1)} without a driver",
            f"{UNUSED}; install the NVIDIA driver, or start the container with GPUs (docker run "
            "--gpus all)",
        )
    if isinstance(driver, Unknown):
        return unknown(driver)
    if driver and driver.problem and hardware != 0:
        return unknown(Unknown("the driver does not work"))
    return ok("none; training uses the CPU")


def check_driver(facts: Facts) -> Verdict:
    """The NVIDIA driver."""
    driver = facts.gpu.driver
    if isinstance(driver, Unknown):
        return unknown(driver)
    if driver is None:
        return ok(f"none; {NONE}")
    if driver.problem and facts.gpu.hardware == 0:
        return ok(f"{driver.problem}; {NONE}")
    if driver.problem:
        return warn(
            driver.problem,
            f"{UNUSED}; restart the machine after an update of the driver, or install it again",
        )
    value = f"{driver.version or 'unknown version'}, CUDA {driver.cuda or 'unknown'}"
    major = _major(driver.cuda)
    if major is not None and major < MIN_CUDA:
        return warn(
            value, f"{UNUSED}, because CuPy needs CUDA {MIN_CUDA}; install a newer NVIDIA driver"
        )
    return ok(value)


def check_cupy(facts: Facts) -> Verdict:
    """Whether CuPy is installed, matches the driver and can use the GPUs."""
    found = facts.gpu
    if isinstance(found.cupy, Unknown):
        return unknown(found.cupy)
    versions = facts.software.versions
    value = ", ".join(f"{name} {versions.get(name) or ''}".strip() for name in found.cupy)
    if len(found.cupy) > 1:
        return warn(
            value,
            "these packages overwrite each other; uninstall them and install one",
            f"pip uninstall {' '.join(found.cupy)}; {_install(facts)}",
        )
    present = isinstance(found.driver, Driver) and not (
        found.driver.problem and found.hardware == 0
    )
    if not found.cupy:
        if not present:
            return ok(f"not installed; {NONE}")
        return warn("not installed", f"{UNUSED}; install CuPy", _install(facts))
    if not present:
        return ok(f"{value}; {NONE}")
    needed, supported = _cuda_of_package(found.cupy[0]), _supported_cuda(facts)
    if needed and supported and needed > supported:
        return warn(
            f"{value} needs CUDA {needed}, the driver supports {supported}",
            f"{UNUSED}; install CuPy for the driver, or a newer driver",
            f"pip uninstall {found.cupy[0]}; {_install(facts)}",
        )
    if found.reason:
        return warn(value, f"{UNUSED}: {found.reason}")
    if isinstance(found.usable, Unknown):
        return unknown(found.usable)
    return ok(value)


def check_pinning(facts: Facts) -> Verdict:
    """Whether memory can be pinned, which makes transfers fast.

    It is tried. The limit on locked memory is shown, but not every driver obeys it.
    """
    usable, memlock = facts.gpu.usable, facts.gpu.memlock
    if isinstance(memlock, Unknown):
        limit = "limit on locked memory unknown"
    else:
        limit = f"limit on locked memory: {'none' if memlock is None else byte_size(memlock)}"
    if isinstance(usable, Unknown) or not usable:
        return ok(f"not tried without a usable GPU ({limit})")
    errors = [device.pinning_error for device in usable if device.pinning_error]
    if not errors:
        return ok(f"memory can be pinned ({limit})")
    return warn(
        f"memory cannot be pinned: {errors[0]} ({limit})",
        "transfers to the GPU are slower; raise the limit (docker run --ulimit memlock=-1)",
        "ulimit -l unlimited",
    )


def _listed(devices: tuple[FoundGpu, ...]) -> str:
    """The devices, equal ones once."""
    counts = Counter((gpu.name, gpu.compute_capability, gpu.memory) for gpu in devices)
    parts = []
    for (name, capability, memory), count in counts.items():
        about = [f"compute capability {capability}"] if capability else []
        about += [byte_size(memory)] if memory else []
        times = f"{count} x " if count > 1 else ""
        parts.append(f"{times}{name}" + (f" ({', '.join(about)})" if about else ""))
    return "; ".join(parts)


def _install(facts: Facts) -> str:
    """The command that installs CuPy for the driver and the GPUs."""
    major = _supported_cuda(facts) or NEWEST_CUDA
    driver = facts.gpu.driver
    devices = driver.devices if isinstance(driver, Driver) else ()
    old = any(_capability(device) < CUDA_13_CAPABILITY for device in devices)
    extra = "cuda12" if major < NEWEST_CUDA or old else "cuda13"
    return f"pip install 'hogbatch[{extra}]'"


def _capability(device: FoundGpu) -> float:
    """The compute capability; infinite if it is unknown."""
    known = re.fullmatch(r"\d+\.\d+", device.compute_capability)
    return float(known[0]) if known else float("inf")


def _supported_cuda(facts: Facts) -> int | None:
    driver = facts.gpu.driver
    return _major(driver.cuda) if isinstance(driver, Driver) else None


def _cuda_of_package(name: str) -> int | None:
    match = re.fullmatch(r"cupy-cuda(\d+)x", name)
    return int(match[1]) if match else None


def _major(version: str) -> int | None:
    major = version.partition(".")[0]
    return int(major) if major.isdecimal() else None
