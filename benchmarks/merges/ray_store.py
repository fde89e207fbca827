"""Ray's object store: two actors that put their changes there and read those of the other one.

Reading copies nothing: the array is a view of the store. A change is put whole or in pieces, which
are added as they arrive; or each actor adds one half, and puts the sum of it. The other actor gets
a piece as the argument of a call, or a reference to it, which it resolves.
"""

import logging
import queue
import time
from typing import Any

import numpy as np
import ray

from benchmarks.merges.contract import (
    TIMEOUT_S,
    Floats,
    Setting,
    check_everything,
    merge_at,
    touched,
)

LEAD_S = 0.05  # from the call to the start of a merge
STORE_BYTES = 3 << 30


class Member:
    """One actor. Its calls run on several threads."""

    def __init__(self, place: int, count: int, setting: Setting) -> None:
        self.change, self.total = touched(count), touched(count)
        self._place, self._setting = place, setting
        self._arrived = queue.Queue[tuple[int, Any]]()
        self._other: Any = None

    def meet(self, other: Any) -> None:
        """The handle of the other actor."""
        self._other = other

    def take(self, start: int, array: Any) -> None:
        """Called by the other actor: an array, or a list with a reference to one."""
        self._arrived.put((start, array))

    def merge(self, number: int) -> None:
        """See `contract.Member`."""
        if self._setting["add"] == "whole":
            self._exchange(len(self.change))
            return
        middle = len(self.change) // 2
        halves = [(0, middle), (middle, len(self.change))]
        own, others = halves[self._place], halves[1 - self._place]
        self._put(self.change, *others)
        self._add(*self._next(own[0]))
        self._put(self.total, *own)
        start, part = self._next(others[0])
        self.total[start : start + len(part)] = part

    def _exchange(self, count: int) -> None:
        step = -(-count // self._setting["pieces"])
        for start in range(0, count, step):
            self._put(self.change, start, min(start + step, count))
        for _ in range(0, count, step):
            self._add(*self._next())

    def _put(self, array: Floats, start: int, stop: int) -> None:
        reference = ray.put(array[start:stop])
        given = reference if self._setting["pass_"] == "argument" else [reference]
        self._other.take.remote(start, given)

    def _next(self, wanted: int | None = None) -> tuple[int, Floats]:
        """The next part, or the one that starts at `wanted`; calls may arrive in another order."""
        start, given = self._arrived.get(timeout=TIMEOUT_S)
        if wanted is not None and start != wanted:
            found = self._next(wanted)
            self._arrived.put((start, given))
            return found
        part: Any = ray.get(given[0]) if isinstance(given, list) else given
        return start, part

    def _add(self, start: int, part: Floats) -> None:
        here = slice(start, start + len(part))
        np.add(self.change[here], part, out=self.total[here])

    def merge_at(self, number: int, at: float) -> float:
        """See `contract.merge_at`."""
        return merge_at(self, self._place, number, at)

    def check(self, number: int) -> None:
        """See `contract.check_everything`."""
        check_everything(self, self._place, number)

    def connect(self) -> None:
        """Nothing is left to do after `meet`."""


class Actors:
    """A cluster of Ray on this machine with both actors."""

    def __init__(self, count: int, setting: Setting) -> None:
        ray.init(
            address="local",  # not to a cluster that others have started
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
        actor = ray.remote(Member).options(num_cpus=1, max_concurrency=4)
        self._actors = [actor.remote(place, count, setting) for place in (0, 1)]
        self._ask("meet", *[[each] for each in reversed(self._actors)])
        self._ask("check", [1], [1])

    def _ask(self, method: str, *arguments: list[Any]) -> list[Any]:
        calls = [
            getattr(actor, method).remote(*each)
            for actor, each in zip(self._actors, arguments, strict=True)
        ]
        answers: list[Any] = ray.get(calls, timeout=TIMEOUT_S)
        return answers

    def merge(self, number: int) -> float:
        """See `contract.Group`."""
        at = time.monotonic() + LEAD_S
        return float(max(self._ask("merge_at", [number, at], [number, at]))) - at

    def close(self) -> None:
        """See `contract.Group`."""
        ray.shutdown()
