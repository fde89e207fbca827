"""Reads versions, whether packages can be imported, and limits of the process."""

import os
import platform
import pwd
import resource
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from hogbatch.doctor.facts import PrivateNames, SoftwareFacts
from hogbatch.doctor.reading.attempt import attempt, reason
from hogbatch.errors import UsageError
from hogbatch.machine.environment import installed
from hogbatch.machine.limits import check_limits
from hogbatch.version import version

MODULES: Final = {  # required package: its module
    "numpy": "numpy",
    "llvmlite": "llvmlite",
    "numba": "numba",
    "msgspec": "msgspec",
    "pyzmq": "zmq",
    "safetensors": "safetensors",
    "rich": "rich",
}
OPTIONAL: Final = (
    *("pyarrow", "scikit-learn", "scipy", "pandas", "polars"),
    *("tensorboard", "mlflow", "mlflow-skinny", "wandb"),
)


def read_software(cupy: tuple[str, ...] = ()) -> SoftwareFacts:
    """Return versions of Python and packages, also of the given packages of CuPy."""
    return SoftwareFacts(
        hogbatch=attempt(version),
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={name: installed(name) for name in (*MODULES, *OPTIONAL, *cupy)},
        import_errors={
            package: error for package, module in MODULES.items() if (error := try_import(module))
        },
        open_files=attempt(_open_files),
        limit_error=_limit_error(),
    )


def read_private_names() -> PrivateNames:
    """Return names of this user, which a report for others must not contain."""
    homes, users = set(), set()
    with suppress(RuntimeError, OSError):  # no home directory
        home = Path.home()
        homes = {str(home), os.path.realpath(home)}
        users = {home.name}
    with suppress(KeyError):  # this user is not in the user database
        users.add(pwd.getpwuid(os.getuid()).pw_name)
    return PrivateNames(frozenset(homes), frozenset(users))


def try_import(module: str) -> str:
    """Import a module; return why that fails, or ""."""
    try:
        import_module(module)
    except Exception as error:  # a broken package may raise anything
        return reason(error)
    return ""


def _open_files() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _limit_error() -> str:
    try:
        check_limits()
    except UsageError as error:
        return str(error)
    return ""
