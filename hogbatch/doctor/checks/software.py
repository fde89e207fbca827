"""Checks of Python, packages and limits of the process."""

from typing import Final

from hogbatch.doctor.facts import Facts, Unknown
from hogbatch.doctor.verdict import Verdict, ok, unknown, warn

REQUIRED: Final = ("numpy", "numba", "llvmlite", "pyzmq", "msgspec", "safetensors", "rich")
EXTRAS: Final = {  # extra: its package, and what it is for
    "arrow": ("pyarrow", "reads tables with text, dates and missing values, and Parquet files"),
    "sklearn": ("scikit-learn", "estimators for scikit-learn"),
}
TRACKERS: Final = {  # extra: the packages of which one is enough
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "mlflow-skinny"),
    "wandb": ("wandb",),
}
SHOWN: Final = {  # names as their projects write them
    "numpy": "NumPy",
    "numba": "Numba",
    "pyarrow": "PyArrow",
}


def check_python(facts: Facts) -> Verdict:
    """The Python interpreter."""
    found = facts.software
    value = f"{found.implementation} {found.python}"
    if found.implementation != "CPython":
        return warn(value, "hogbatch is not tested with it; use CPython 3.11 or newer")
    return ok(value)


def check_packages(facts: Facts) -> Verdict:
    """The packages that every installation needs."""
    found = facts.software
    absent = [name for name in REQUIRED if found.versions.get(name) is None]
    if absent:
        return warn(
            f"{', '.join(absent)} not installed",
            "hogbatch cannot train; install what is missing",
            f"pip install {' '.join(absent)}",
        )
    if found.import_errors:
        value = "; ".join(f"{name}: {error}" for name, error in found.import_errors.items())
        return warn(
            value,
            "hogbatch cannot train; install versions that work together",
            f"pip install --force-reinstall {' '.join(REQUIRED)}",  # so that pip adapts all of them
        )
    return ok(", ".join(f"{SHOWN.get(name, name)} {found.versions[name]}" for name in REQUIRED))


def check_arrow(facts: Facts) -> Verdict:
    """PyArrow."""
    return _check_extra(facts, "arrow")


def check_sklearn(facts: Facts) -> Verdict:
    """scikit-learn."""
    return _check_extra(facts, "sklearn")


def check_trackers(facts: Facts) -> Verdict:
    """The packages of experiment trackers."""
    versions, found, absent = facts.software.versions, [], []
    for extra, packages in TRACKERS.items():
        installed = [f"{name} {versions[name]}" for name in packages if versions.get(name)]
        found += installed[:1]
        absent += [] if installed else [extra]
    if not absent:
        return ok(", ".join(found))
    value = "; ".join(filter(None, [", ".join(found), f"not installed: {', '.join(absent)}"]))
    return ok(value, "optional", f"pip install 'hogbatch[{','.join(absent)}]'")


def _check_extra(facts: Facts, extra: str) -> Verdict:
    package, purpose = EXTRAS[extra]
    name, found = SHOWN.get(package, package), facts.software.versions.get(package)
    if found is None:
        return ok(
            f"{name} is not installed; {purpose}", "optional", f"pip install 'hogbatch[{extra}]'"
        )
    return ok(f"{name} {found}")


def check_limits(facts: Facts) -> Verdict:
    """Limits of the process besides memory."""
    found = facts.software
    if found.limit_error:
        return warn("too low", f"no run can start: {found.limit_error}")
    if isinstance(found.open_files, Unknown):
        return unknown(found.open_files)
    return ok("no limit" if found.open_files is None else f"{found.open_files}")
