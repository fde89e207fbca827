"""Messages about the parts of divided data, encoded by msgspec.

Arrays are bytes in the order of this machine, as all servers of a run have the same.
"""

from typing import Any, Self

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hogbatch.config.sets import SetName
from hogbatch.data.encode import Encoding
from hogbatch.data.facts import Fitted
from hogbatch.data.order import Fractions
from hogbatch.data.raw import Columns, LabelLists, LabelNames
from hogbatch.data.scale import ColumnMoments, Scaler
from hogbatch.data.sizes import SetSizes
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment


class StoredMoments(Struct, frozen=True):
    """Moments of the columns that have a value other than 0 in some row."""

    rows: int
    columns: bytes  # int64[n]
    values: bytes  # float64[4, n]: mean, squares, low, high

    @classmethod
    def of(cls, moments: ColumnMoments) -> Self:
        """Leave out columns of zeros."""
        rows, *values = moments
        columns = np.flatnonzero((moments.low != 0) | (moments.high != 0))
        return cls(rows, columns.tobytes(), np.stack(values)[:, columns].tobytes())

    def restored(self, features: int) -> ColumnMoments:
        """The moments of F = `features` columns; those that the part lacks are 0."""
        columns = np.frombuffer(self.columns, np.int64)
        values = np.zeros((4, features))
        values[:, columns] = np.frombuffer(self.values).reshape(4, -1)
        return ColumnMoments(self.rows, *values)


class SingleLabels(Struct, frozen=True, tag=True):
    """The labels of all rows of a part that has one label per row."""

    values: bytes  # [N], in the order of the file
    dtype: str  # of the values
    names: LabelNames  # of text or boolean labels; `values` are then indices into it

    def array(self) -> NDArray[Any]:
        """The labels [N]."""
        return np.frombuffer(self.values, self.dtype)


class ListedLabels(Struct, frozen=True, tag=True):
    """The labels of a part that has lists of labels."""

    highest: int  # label of all rows; -1 if there is none
    labels: bytes  # int64[n], the distinct labels of the training rows
    counts: bytes  # int64[n], the training rows that have each of them

    @classmethod
    def of(cls, lists: LabelLists, training: NDArray[np.int32]) -> Self:
        """The labels of all rows, and the indices of those of the training rows."""
        labels, counts = np.unique(training, return_counts=True)
        highest = int(lists.indices.max(initial=-1))
        return cls(highest, labels.astype(np.int64).tobytes(), counts.tobytes())

    def frequencies(self, outputs: int) -> NDArray[np.int64]:
        """The number of training rows that have each of C = `outputs` labels."""
        counts = np.zeros(outputs, np.int64)
        counts[np.frombuffer(self.labels, np.int64)] = np.frombuffer(self.counts, np.int64)
        return counts


class Part(Struct, frozen=True, kw_only=True):
    """A part, as it is read for training, or a file of held-out rows, which every server reads."""

    number: int = -1  # from 0, in the order of the files; -1: held-out rows
    path: str
    digest: bytes  # 16 bytes, of the rows as read
    sets: dict[SetName, SetSizes]  # into which its rows are split

    @property
    def train(self) -> SetSizes:
        return self.sets["train"]

    @property
    def rows(self) -> int:
        return sum(sizes.rows for sizes in self.sets.values())

    def rows_of(self, name: SetName) -> int:
        return self.sets[name].rows if name in self.sets else 0


class PartSurvey(Struct, frozen=True, kw_only=True):
    """The facts about a part that are needed to plan a run."""

    part: Part  # its sizes are those in the file: labels are lists if they are in the file
    index_base: int | None  # number of the first feature, for formats that have one
    columns: Columns
    classes_hint: int  # number of labels if stated in the file, else 0
    labels: SingleLabels | ListedLabels
    moments: StoredMoments  # of the training rows
    skipped: int  # lines
    notes: tuple[str, ...]  # for the user, without the name of the file
    skipped_lines: tuple[str, ...]  # messages for the user


class PartReading(Struct, frozen=True, kw_only=True):
    """The rules for encoding, scaling and splitting the rows of all parts.

    They are read with the options that the settings of the run give.
    """

    index_base: int | None  # as found
    columns: Columns  # of all parts
    features: int  # F
    sparse: bool
    encoding: Encoding
    stored_scaler: tuple[bytes, bytes] | None  # float64[F]: mean, scale
    fractions: Fractions
    seed: int

    @property
    def fitted(self) -> Fitted:
        """How all rows are prepared; the arrays of the scaler cannot be written."""
        scaler = self.stored_scaler and Scaler(*map(np.frombuffer, self.stored_scaler))
        return Fitted(self.encoding, scaler, None, self.columns, self.index_base, self.features)


class DividedFiles(Struct, frozen=True):
    """All files, and how they are read: the data of a server in place of the rows."""

    parts: tuple[Part, ...]
    held_out: tuple[Part, ...]  # that all servers read; other sets are in the parts
    reading: PartReading


def segment_of(files: DividedFiles) -> Segment:
    """A read-only segment that contains `files`."""
    encoded = np.frombuffer(msgspec.msgpack.encode(files), np.uint8)
    layout = arrange({"files": ("|u1", encoded.shape)})
    segment = Segment.create("data", layout, read_only=True)
    segment.array("files")[:] = encoded
    return segment


def files_in(segment: Segment) -> DividedFiles:
    """The files in a segment that was created by `segment_of`."""
    return msgspec.msgpack.decode(segment.array("files").tobytes(), type=DividedFiles)
