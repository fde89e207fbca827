"""Ways to move a model to a worker and back: one module a way, as `contract.Module` says.

A plane is a module with its candidates: the settings that are tried before the best is measured.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Final, NamedTuple

from transports.contract import Module, Setting

# glibc gives memory of this size back at once, and every move then waits for fresh pages. "keep"
# has it kept, "keep in huge pages" takes it in pages of 2 MiB besides, as our own segments are.
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
    """A row of the table."""

    module: str
    package: str  # that must be installed
    candidates: tuple[Setting, ...]


PLANES: Final = {
    "shared": Plane("transports.shared", "pyzmq", settings(worker=("in place",))),
    "replica": Plane("transports.shared", "pyzmq", settings(worker=("replica",))),
    "socket": Plane("transports.stream", "numpy", settings(buffer_mb=(None, 1, 4))),
    "pickle": Plane(
        "transports.pickled",
        "pyzmq",
        settings(out_of_band=(False, True), piece_mb=(None, 1, 4), malloc=tuple(MALLOCS)),
    ),
    "grpc": Plane(
        "transports.rpc",
        "grpcio",
        settings(
            piece_mb=(None, 1, 2, 4), options=("default", "large reads"), malloc=tuple(MALLOCS)
        ),
    ),
}


def load(plane: str) -> Module:
    """The module of a plane; what it needs is imported with it."""
    module: Module = import_module(PLANES[plane].module)
    return module


def installed(planes: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each plane with the version of its package, None where that is missing."""
    for plane in planes:
        try:
            yield plane, version(PLANES[plane].package)
        except PackageNotFoundError:
            yield plane, None
