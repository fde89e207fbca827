"""The right to write to the shared model, one word per worker.

A Work message carries the generation of its worker's fence. The worker's kernels compare it with
the word in shared memory between two batches, and before a merge; as soon as the two differ they
stop. So the coordinator can take a lease from a worker that fell silent, give it to another,
and be sure that the first, should it wake up, does the rows no second time.

No lock is needed. An aligned store of 8 bytes is atomic on every machine we run on (x86-64 and
64-bit ARM), so a reader sees the old value or the new one and nothing between; and every word has
a single writer, the coordinator. Each worker's word has a cache line to itself, so that revoking
one worker costs the others nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.store.layout import LINE, Shape
from hogbatch.store.segment import Segment

WORKERS = 16_384  # that a run can ever admit at one time; 1 MiB
GENERATION = 0  # the word of a line that counts; the others only fill it


@dataclass(frozen=True, slots=True)
class Fences:
    """The fence lines of all workers; generations start at 0."""

    lines: NDArray[np.int64]  # [WORKERS, 8]

    @staticmethod
    def fields() -> Mapping[str, tuple[str, Shape]]:
        """The array to arrange."""
        return {"fences": ("<i8", (WORKERS, LINE // 8))}

    @classmethod
    def of(cls, segment: Segment) -> Self:
        """The fences in `segment`."""
        return cls(segment.array("fences"))

    def current(self, worker: int) -> int:
        """The generation that lets `worker` write."""
        return int(self.lines[worker, GENERATION])

    def revoke(self, worker: int) -> int:
        """End every lease of `worker`; return the generation for its next. Coordinator only."""
        self.lines[worker, GENERATION] += 1
        return self.current(worker)

    def line(self, worker: int) -> NDArray[np.int64]:
        """The line [8] of `worker`, a view for its kernels to watch."""
        line: NDArray[np.int64] = self.lines[worker]
        return line
