"""The rows that a server reads itself, if the data are divided among servers.

The coordinator of all servers numbers the rows of all parts; a server has only some of the parts in
its memory, one after the other.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from msgspec import structs

from hogbatch.cluster.divided.reading import read_in_turn, sizes_of
from hogbatch.cluster.divided.records import DividedFiles
from hogbatch.config.sets import SET_NAMES
from hogbatch.data.cache import DataCache
from hogbatch.store import dataset
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from hogbatch.wire.messages import Lease


class Positions:
    """Converts positions among the rows of all parts to positions among those of some parts."""

    def __init__(self, sizes: Sequence[int], own: Sequence[int]) -> None:
        """All parts have `sizes` rows; those with the numbers `own` are here, in this order."""
        self._starts = list(accumulate(sizes, initial=0))
        local = accumulate((sizes[part] for part in own), initial=0)
        self._local = dict(zip(own, local, strict=False))

    def local(self, start: int) -> int:
        """The local position of `start`; its part must be on this server."""
        part = bisect_right(self._starts, start) - 1
        return self._local[part] + start - self._starts[part]


class ServerRows:
    """The rows of the parts `own` of `files`."""

    def __init__(self, files: DividedFiles, own: Sequence[int]) -> None:
        self._files = files
        self._own = [files.parts[number] for number in own]
        # (number, training rows) of each
        self.parts = tuple((number, files.parts[number].train.rows) for number in own)
        self._positions = {
            name: Positions([each.rows_of(name) for each in files.parts], own)
            for name in SET_NAMES
            if name not in files.held_out
        }

    @property
    def train_rows(self) -> int:
        return sum(rows for _, rows in self.parts)

    def read(self, cache: DataCache | None) -> Segment:
        """Read the files, one after the other, into a new segment.

        DataError if one is invalid or has changed, UsageError if there is too little memory.
        """
        files = self._files
        layout = arrange(dataset.fields_of(sizes_of(self._own, files.held_out)))
        segment = Segment.create("data", layout)
        pieces = read_in_turn(self._own, files.held_out, files.reading, cache)
        dataset.fill_in_turn(segment, pieces)
        segment.make_read_only()
        return segment

    def local(self, lease: Lease) -> Lease:
        """`lease`, with positions among the rows of this server."""
        if (positions := self._positions.get(lease.task)) is None:
            return lease
        start = positions.local(lease.start)
        return structs.replace(lease, start=start, stop=start + lease.stop - lease.start)
