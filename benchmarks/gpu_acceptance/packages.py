"""The packages that the stages import, and how to install the missing ones."""

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

BASE: Final = {  # module: package; after each package its dependencies
    "msgspec": "msgspec",
    "zmq": "pyzmq",
    "safetensors": "safetensors",
    "numba": "numba",
    "llvmlite": "llvmlite",
    "numpy": "numpy",
    "cuda.pathfinder": "cuda-pathfinder",
}
FOR_TESTS: Final = {
    "pytest": "pytest",
    "iniconfig": "iniconfig",
    "packaging": "packaging",
    "pluggy": "pluggy",
    "pygments": "pygments",
    "pytest_timeout": "pytest-timeout",
    "hypothesis": "hypothesis",
    "sortedcontainers": "sortedcontainers",
}
FOR_STAGE: Final = {"tests": FOR_TESTS, "sanitizer": FOR_TESTS}
CUDA_LIBRARIES: Final = (  # of cupy-cuda13x[ctk]; packages without "nvidia-"
    *("cublas", "cuda-nvrtc", "cuda-runtime", "cufft"),
    *("curand", "cusolver", "cusparse", "nvjitlink"),
)
NEWEST_CUDA: Final = 13  # of which there is a CuPy
PLATFORMS: Final = (  # of wheels; pip takes only those that are named
    *("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_26", "manylinux_2_27"),
    "manylinux_2_28",
)


def missing(stages: Sequence[str]) -> dict[str, str]:
    """{package: the stages that need it, or the error}, of those that cannot be imported."""
    needed = {module: (package, list(stages)) for module, package in BASE.items()}
    for stage in stages:
        for module, package in FOR_STAGE.get(stage, {}).items():
            needed.setdefault(module, (package, []))[1].append(stage)
    absent = {}
    for module, (package, wanted) in needed.items():
        if (failure := import_failure(module)) is not None:
            absent[package] = failure or _needed_for(wanted)
    if (failure := import_failure("cupy")) is not None:
        absent |= dict.fromkeys(cupy_packages(cuda_major()), failure or _needed_for(stages))
    return absent


def _needed_for(stages: Sequence[str]) -> str:
    return f"missing, needed for {', '.join(stages)}"


def cupy_packages(major: int) -> list[str]:
    """CuPy for that version of CUDA, and NVIDIA's libraries that it needs."""
    suffix = "-cu12" if major == 12 else ""
    return [f"cupy-cuda{major}x", *(f"nvidia-{name}{suffix}" for name in CUDA_LIBRARIES)]


def cuda_major() -> int:
    """The major version of CUDA that the driver supports, of those with a CuPy: 12 or 13."""
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return NEWEST_CUDA
    # "CUDA Version: 13.0", in newer drivers "CUDA UMD Version: 13.3", as in scripts/environment
    found = re.search(r"CUDA(?: [A-Z]+)? Version: *(\d+)", done.stdout)
    return min(max(int(found[1]), 12), NEWEST_CUDA) if found else NEWEST_CUDA


def import_failure(module: str) -> str | None:
    """Why an installed module cannot be imported; empty if it is missing, None if it was imported.

    Numba, for example, rejects a NumPy that is newer than it supports.
    """
    try:
        import_module(module)
    except ModuleNotFoundError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def advice(lacking: dict[str, str]) -> str:
    """The packages that cannot be imported, and the commands that install them from wheels.

    Without dependencies: pip would add packages that are installed, such as another NumPy.
    """
    names = " ".join(lacking)
    lines = [f"  {name}: {why}" for name, why in lacking.items()]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    tags = [f"{each}_{platform.machine()}" for each in PLATFORMS]
    platforms = " ".join(f"--platform {tag}" for tag in tags)
    return "\n".join(
        [
            f"packages cannot be imported by Python {python}:",
            *lines,
            "On a machine with a network:",
            "  python3 -m pip download --no-deps --dest wheels --only-binary :all: "
            f"--python-version {python} {platforms} {names}",
            "Then on this one, with the directory wheels:",
            f"  {sys.executable} -m pip install --no-deps --no-index --find-links wheels "
            f"--target packages {names}",
            "or without pip:",
            f'  for w in wheels/*.whl; do {sys.executable} -m zipfile -e "$w" packages; done',
            "and in both cases",
            '  export PYTHONPATH="$PWD/packages${PYTHONPATH:+:$PYTHONPATH}"',
            "Or select other stages with --stages.",
        ]
    )
