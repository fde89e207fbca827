"""The files of divided data in a segment: in place of the rows, which each server reads itself."""

import msgspec
import numpy as np

from hogbatch.cluster.divided.records import HeldOutFile, Part, PartReading
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment

FIELD = "files"


class DividedFiles(msgspec.Struct, frozen=True):
    """All files, and how they are read."""

    parts: tuple[Part, ...]
    test: HeldOutFile | None  # that all servers read; None: test rows are in the parts, or nowhere
    reading: PartReading


def segment_of(files: DividedFiles) -> Segment:
    """A read-only segment that contains `files`."""
    encoded = np.frombuffer(msgspec.msgpack.encode(files), np.uint8)
    segment = Segment.create("data", arrange({FIELD: ("|u1", encoded.shape)}))
    segment.array(FIELD)[:] = encoded
    segment.make_read_only()
    return segment


def files_in(segment: Segment) -> DividedFiles:
    """The files in a segment that was created by `segment_of`."""
    return msgspec.msgpack.decode(segment.array(FIELD).tobytes(), type=DividedFiles)
