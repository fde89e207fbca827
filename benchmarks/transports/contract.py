"""What every transport does, and how it is seen that it did.

The coordinator writes new numbers at some places of its parameters; `move` brings the parameters
to the worker, which turns the signs at these places, and brings them back. A transport that moves
nothing, or once more what it moved before, or one way only, is found out.
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
ENDPOINT = "worker.socket"  # in the folder of a pair; short, as a socket's path must be


class NotMoved(Exception):
    """The coordinator does not have what the worker should have made of its parameters."""


class Coordinator(Protocol):
    """The coordinator's side. Made with a private folder, the number of parameters, a setting.

    From then on a worker can reach it.
    """

    params: Floats  # [P], its own and writable; after `move` as the worker has changed them

    def accept(self) -> None:
        """Wait for the worker."""

    def move(self) -> None:
        """Have the worker get `params` as an array that it can compute on, and change them."""


class Module(Protocol):
    """A transport."""

    def Coordinator(self, folder: Path, count: int, setting: Setting) -> Coordinator: ...

    def work(self, folder: Path, count: int, setting: Setting) -> Never:
        """The worker's side: wait for parameters [count], `change` them, send them back."""


@cache
def places(count: int) -> NDArray[np.intp]:
    """Indices of up to 64 of `count` parameters, evenly spread, the first and last among them."""
    return np.unique(np.linspace(0, count - 1, PLACES).astype(np.intp))


def change(params: Floats) -> None:
    """What the worker does, in place."""
    here = places(len(params))
    params[here] = -params[here]


def move_timed(coordinator: Coordinator, random: np.random.Generator) -> float:
    """One round: seconds from having new parameters to reading what the worker made of them.

    Raises NotMoved if that is something else.
    """
    here = places(len(coordinator.params))
    numbers = random.integers(1, 1 << 20, len(here)).astype(np.float32)
    coordinator.params[here] = numbers
    start = time.perf_counter()
    coordinator.move()
    seconds = time.perf_counter() - start
    if not np.array_equal(coordinator.params[here], -numbers):
        raise NotMoved(f"expected the {len(here)} numbers that the worker wrote; got others")
    return seconds


def move_whole(coordinator: Coordinator, random: np.random.Generator) -> None:
    """A first round, untimed, that looks at every parameter; NotMoved if one is not right."""
    count = len(coordinator.params)
    coordinator.params[:] = random.standard_normal(count, dtype=np.float32)
    expected = coordinator.params.copy()
    change(expected)
    coordinator.move()
    if wrong := np.count_nonzero(coordinator.params != expected):
        raise NotMoved(f"expected {count} parameters to arrive; {wrong} did not")


def pieces(params: Floats, megabytes: float | None) -> Iterator[Floats]:
    """Views of `params`, so long at most; None is all in one."""
    step = len(params) if megabytes is None else int(megabytes * FLOATS_PER_MB)
    return (params[start : start + step] for start in range(0, len(params), step))


def touched(count: int) -> Floats:
    """An array whose pages are all there, so that no move has to wait for them."""
    return np.full(count, np.nan, np.float32)
