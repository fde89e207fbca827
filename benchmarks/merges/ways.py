"""The ways to merge, and the settings that are tried before the best of each is measured."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, cast

from benchmarks.common.candidates import settings
from benchmarks.merges.contract import Group, Setting
from benchmarks.merges.processes import Processes


class Way(NamedTuple):
    """One way to merge."""

    package: str  # must be installed
    start: Callable[[int, Setting], Group]  # with the number of parameters
    candidates: tuple[Setting, ...]


def nixl(count: int, setting: Setting) -> Group:
    """hogbatch over NIXL."""
    return Processes("benchmarks.merges.nixl_writes", count, setting)


def grpc(count: int, setting: Setting) -> Group:
    """Pickle over gRPC."""
    return Processes("benchmarks.merges.pickled_rpc", count, setting)


def ray(count: int, setting: Setting) -> Group:
    """Ray's object store."""
    module = import_module("benchmarks.merges.ray_store")
    return cast(Group, module.Actors(count, setting))


WAYS: Final = {
    "nixl": Way("nixl", nixl, settings(variables=({},))),
    "nixl-tcp": Way("nixl", nixl, settings(variables=({"UCX_TLS": "tcp"},))),
    "ray": Way(
        "ray",
        ray,
        settings(add=("whole",), pieces=(1, 4), pass_=("argument", "reference"))
        + settings(add=("halves",), pieces=(1,), pass_=("argument", "reference")),
    ),
    "grpc": Way(
        "grpc",
        grpc,
        settings(
            piece_mb=(None, 1, 4),
            options=("default", "large reads"),
            malloc=("keep", "keep in huge pages"),
        ),
    ),
}


def missing(way: str) -> bool:
    """Whether the package of a way is not installed."""
    return find_spec(WAYS[way].package) is None
