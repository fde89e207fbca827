"""The planes: one module per way to move a model to a worker and back, a `contract.Module` each.

The candidates of a plane are the settings that are tried before the best of them is measured.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

from benchmarks.common.candidates import MALLOCS, settings
from benchmarks.planes.contract import Module, Setting


class Plane(NamedTuple):
    """One way to move a model."""

    module: str
    package: str  # must be installed
    candidates: tuple[Setting, ...]


PLANES: Final = {
    "shared": Plane("benchmarks.planes.shared", "pyzmq", settings(worker=("in place",))),
    "replica": Plane("benchmarks.planes.shared", "pyzmq", settings(worker=("replica",))),
    "socket": Plane("benchmarks.planes.stream", "numpy", settings(buffer_mb=(None, 1, 4))),
    "pickle": Plane(
        "benchmarks.planes.pickled",
        "pyzmq",
        settings(out_of_band=(False, True), piece_mb=(None, 1, 4), malloc=tuple(MALLOCS)),
    ),
    "grpc": Plane(
        "benchmarks.planes.rpc",
        "grpcio",
        settings(
            piece_mb=(None, 1, 2, 4), options=("default", "large reads"), malloc=tuple(MALLOCS)
        ),
    ),
}


def load(plane: str) -> Module:
    """The module of a plane; its dependencies are imported with it."""
    module: Module = import_module(PLANES[plane].module)
    return module


def installed(planes: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each plane with the version of its package, None if that is not installed."""
    for plane in planes:
        try:
            yield plane, version(PLANES[plane].package)
        except PackageNotFoundError:
            yield plane, None
