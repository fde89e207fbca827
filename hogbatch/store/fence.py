"""Fences: permissions to write to the shared model, one word per worker.

A Lease message contains the generation of its worker's fence. The worker's kernels compare it with
the word in shared memory between batches and before each merge, and stop when the two differ. So
the coordinator can give the rows of a worker that does not respond to another one.

No lock is needed: an aligned store of 8 bytes is atomic on x86-64 and 64-bit ARM, and only the
coordinator writes. Each word has its own cache line, so revoking one worker does not slow down the
others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.store.layout import LINE, Shape
from hogbatch.store.segment import Segment

MAX_WORKERS = 16_384  # at one time in a run; their fences take 1 MiB
GENERATION = 0  # index of the generation in a line; the other words are padding


@dataclass(frozen=True, slots=True)
class Fences:
    """The fence lines of all workers; generations start at 0."""

    lines: NDArray[np.int64]  # [MAX_WORKERS, 8]

    @staticmethod
    def fields() -> Mapping[str, tuple[str, Shape]]:
        """The array, for :func:`hogbatch.store.layout.arrange`."""
        return {"fences": ("<i8", (MAX_WORKERS, LINE // 8))}

    @classmethod
    def of(cls, segment: Segment) -> Self:
        return cls(segment.array("fences"))

    def current(self, worker: int) -> int:
        """The generation with which `worker` may write."""
        return int(self.lines[worker, GENERATION])

    def revoke(self, worker: int) -> int:
        """Revoke all leases of `worker`; return its next generation. Coordinator only."""
        self.lines[worker, GENERATION] += 1
        return self.current(worker)

    def line(self, worker: int) -> NDArray[np.int64]:
        """The line [8] of `worker`, a view that its kernels read."""
        line: NDArray[np.int64] = self.lines[worker]
        return line
