"""The interface of a plane, and the check that it moves the parameters.

The coordinator writes new numbers at some places of its parameters; `move` brings the parameters
to the worker, which flips the signs at these places, and brings them back. The check detects a
plane that moves nothing, repeats an earlier move, or moves in one direction only.
"""

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Never, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Setting = dict[str, Any]

FLOATS_PER_MB = 250_000
PLACES = 64
ENDPOINT = "worker.socket"  # in the folder of a pair; short, because socket paths are limited


class NotMoved(Exception):
    """The coordinator's parameters are not those that the worker should have written."""


class CoordinatorSide(Protocol):
    """The coordinator's side, made from a private folder, the number of parameters and a setting.

    A worker can connect as soon as it exists.
    """

    params: Floats  # [P], its own and writable; after `move` as changed by the worker

    def accept(self) -> None:
        """Wait for the worker."""

    def move(self) -> None:
        """Send `params` to the worker as an array it can compute on; receive the changed ones."""


class Module(Protocol):
    """The module of a plane."""

    def CoordinatorSide(self, folder: Path, count: int, setting: Setting) -> CoordinatorSide: ...

    def work(self, folder: Path, count: int, setting: Setting) -> Never:
        """The worker's side: receive parameters [count], `change` them, send them back."""


@cache
def places(count: int) -> NDArray[np.intp]:
    """Indices of up to 64 of `count` parameters, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, PLACES).astype(np.intp))


def change(params: Floats) -> None:
    """The worker's change, in place."""
    here = places(len(params))
    params[here] = -params[here]


def move_timed(coordinator: CoordinatorSide, random: np.random.Generator) -> float:
    """One round: seconds from new parameters to reading the worker's result.

    NotMoved if the result is wrong.
    """
    here = places(len(coordinator.params))
    numbers = random.integers(1, 1 << 20, len(here)).astype(np.float32)
    coordinator.params[here] = numbers
    start = time.perf_counter()
    coordinator.move()
    seconds = time.perf_counter() - start
    if not np.array_equal(coordinator.params[here], -numbers):
        raise NotMoved(f"expected the {len(here)} numbers written by the worker; got other numbers")
    return seconds


def move_whole(coordinator: CoordinatorSide, random: np.random.Generator) -> None:
    """A first round, not timed, that checks every parameter; NotMoved if one is wrong."""
    count = len(coordinator.params)
    coordinator.params[:] = random.standard_normal(count, dtype=np.float32)
    expected = coordinator.params.copy()
    change(expected)
    coordinator.move()
    if wrong := np.count_nonzero(coordinator.params != expected):
        raise NotMoved(f"expected {count} parameters to arrive; {wrong} did not")


def pieces(params: Floats, megabytes: float | None) -> Iterator[Floats]:
    """Views of `params` of at most `megabytes` each; None: a single view."""
    step = len(params) if megabytes is None else int(megabytes * FLOATS_PER_MB)
    return (params[start : start + step] for start in range(0, len(params), step))


def touched(count: int) -> Floats:
    """An array whose pages are all mapped, so that no move has to wait for them."""
    return np.full(count, np.nan, np.float32)
