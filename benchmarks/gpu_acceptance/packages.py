"""The packages that the stages import, and how to bring those that a machine lacks."""

import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

BASE: Final = {  # module: package
    "msgspec": "msgspec",
    "zmq": "pyzmq",
    "safetensors": "safetensors",
    "numba": "numba",
    "numpy": "numpy",
    "cupy": "cupy-cuda13x[ctk]",
    "cuda.pathfinder": "cuda-pathfinder",
}
FOR_STAGE: Final = {
    "tests": {"pytest": "pytest", "pytest_timeout": "pytest-timeout", "hypothesis": "hypothesis"},
    "sanitizer": {
        "pytest": "pytest",
        "pytest_timeout": "pytest-timeout",
        "hypothesis": "hypothesis",
    },
}
PLATFORMS: Final = (  # of wheels; pip takes only those that are named
    *("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_26", "manylinux_2_27"),
    "manylinux_2_28",
)


def missing(stages: Sequence[str]) -> dict[str, list[str]]:
    """{package: stages that need it} of the packages that cannot be imported."""
    needed: dict[str, tuple[str, list[str]]] = {
        module: (package, list(stages)) for module, package in BASE.items()
    }
    for stage in stages:
        for module, package in FOR_STAGE.get(stage, {}).items():
            needed.setdefault(module, (package, []))[1].append(stage)
    return {
        package: wanted for module, (package, wanted) in needed.items() if not importable(module)
    }


def importable(module: str) -> bool:
    """Whether there is such a module; none is imported, except the package around it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def advice(lacking: dict[str, list[str]]) -> str:
    """The missing packages, and the commands that bring them as wheels."""
    names = " ".join(f"'{name}'" if "[" in name else name for name in lacking)
    lines = [f"  {name}, for {', '.join(stages)}" for name, stages in lacking.items()]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    tags = [f"{each}_{platform.machine()}" for each in PLATFORMS]
    platforms = " ".join(f"--platform {tag}" for tag in tags)
    return "\n".join(
        [
            "gpu_acceptance: packages are missing for Python " + python + ":",
            *lines,
            "On a machine with a network:",
            f"  python3 -m pip download --dest wheels --only-binary :all: --python-version {python}"
            f" {platforms} {names}",
            "Then on this one, with the directory wheels:",
            f"  {sys.executable} -m pip install --no-index --find-links wheels --target packages "
            f"{names}",
            '  export PYTHONPATH="$PWD/packages${PYTHONPATH:+:$PYTHONPATH}"',
            "or leave out the stages that need them: --stages",
        ]
    )
