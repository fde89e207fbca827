"""The planes: one module per way to move a model to a worker and back, a `contract.Module` each.

The candidates of a plane are the settings that are tried before the best of them is measured.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Final, NamedTuple

from benchmarks.planes.contract import Module, Setting

# By default glibc returns memory of this size to the kernel, and every move waits for fresh pages.
# "keep" makes glibc keep it; "keep in huge pages" also uses pages of 2 MiB, as hogbatch's segments.
KEEP: Final = (
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1000000000000:glibc.malloc.top_pad=67108864"
)
MALLOCS: Final = {
    "default": "",
    "keep": KEEP,
    "keep in huge pages": f"{KEEP}:glibc.malloc.hugetlb=1",
}


def settings(**axes: tuple[object, ...]) -> tuple[Setting, ...]:
    """Every combination of the values of all axes."""
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


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
