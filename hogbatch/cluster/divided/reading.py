"""Reading parts and files of held-out rows: what a plan needs to know of them, and their rows.

The coordinator of all servers numbers the rows of all parts; a server has only some of the parts in
its memory, one after the other.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch.cluster.divided.records import (
    DividedFiles,
    ListedLabels,
    Part,
    PartReading,
    PartSurvey,
    SingleLabels,
    StoredMoments,
)
from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.data import csr
from hogbatch.data.batch import Examples
from hogbatch.data.cache import DataCache
from hogbatch.data.digest import of_arrays
from hogbatch.data.encode import encode, expect_labelled
from hogbatch.data.facts import require_memory_for_copy
from hogbatch.data.later import file_of, rows_like
from hogbatch.data.load import split_rows, with_declared
from hogbatch.data.order import Fractions, RowNumbers, take
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.scale import ColumnMoments, scaled
from hogbatch.data.sizes import SetSizes
from hogbatch.data.table.rows import UnexpectedCell
from hogbatch.errors import DataError
from hogbatch.store import dataset
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from hogbatch.wire.messages import Lease

ONLY_NUMBERS: Final = (
    "data that are divided over servers (--data-copies) must be numbers without missing values; "
    "convert the files, or train without --data-copies"
)


def survey(
    path: str | Path,
    number: int,
    options: ReadOptions,
    *,
    fractions: Fractions,
    seed: int,
    cache: DataCache | None = None,
) -> PartSurvey:
    """Read part `number` (from 0) and return what is needed to plan a run.

    `fractions` of its rows are held out (0 for sets with files of their own). DataError for an
    invalid file, or one with text. UsageError if it does not fit into memory.
    """
    raw = read_rows(path, options, cache)
    expect_labelled(raw)
    require_memory_for_copy(raw.inputs)
    sets = split_rows(raw.rows, fractions, (seed, number))
    return PartSurvey(
        part=Part(
            number=number,
            path=str(path),
            digest=digest_of(raw),
            sets={name: _sizes(raw, rows) for name, rows in sets.items()},
        ),
        index_base=raw.index_base,
        columns=raw.columns,
        classes_hint=raw.classes_hint,
        labels=_labels(raw, sets["train"]),
        moments=StoredMoments.of(ColumnMoments.of(raw.inputs, raw.features, sets["train"])),
        skipped=raw.skipped.total,
        notes=raw.notes,
        skipped_lines=raw.skipped.notes(raw.source, raw.rows),
    )


def read_rows(path: str | Path, options: ReadOptions, cache: DataCache | None) -> RawSet:
    """Read the rows of a part; DataError says what to do about text and missing values."""
    try:
        return with_declared(read_as(path, options, cache), options.declared)
    except UnexpectedCell as error:
        raise DataError(f"{error}; {ONLY_NUMBERS}") from None


def digest_of(raw: RawSet) -> bytes:
    labels = () if raw.labels is None else (raw.labels,)
    arrays = (*raw.inputs, *labels, *(raw.label_lists or ()))
    return of_arrays(repr((raw.features, raw.label_names)), arrays).digest()


def _sizes(raw: RawSet, rows: RowNumbers | None) -> SetSizes:
    """The sizes of `rows`; None: all."""
    lists = raw.label_lists
    return SetSizes(
        raw.rows if rows is None else len(rows),
        raw.features,
        len(raw.inputs.indptr) > 0,
        *_entries(raw.inputs.indptr, rows),
        lists is not None,
        *((0, 0) if lists is None else _entries(lists.indptr, rows)),
    )


def _entries(indptr: NDArray[np.int64], rows: RowNumbers | None) -> tuple[int, int]:
    """The entries of `rows` of a CSR matrix, and the largest number in one; 0 if it is empty."""
    if not len(indptr):
        return 0, 0
    lengths = np.diff(indptr) if rows is None else np.diff(indptr)[rows]
    return int(lengths.sum()), int(lengths.max())


def _labels(raw: RawSet, training: RowNumbers | None) -> SingleLabels | ListedLabels:
    if raw.labels is not None and raw.labels.ndim > 1:
        raise DataError(
            f"{raw.source}: data that are divided among servers have one label per row; got "
            f"{raw.labels.shape[1]}"
        )
    if raw.labels is not None:
        return SingleLabels(raw.labels.tobytes(), raw.labels.dtype.str, raw.label_names)
    assert raw.label_lists is not None
    indptr, indices = raw.label_lists
    own = indices if training is None else indices[csr.positions(indptr, training)[1]]
    return ListedLabels.of(raw.label_lists, own)


Piece: TypeAlias = Mapping[SetName, Examples]  # rows to add to the sets of a server


def sizes_of(parts: Sequence[Part]) -> dict[SetName, SetSizes]:
    """The sizes of the sets of rows of `parts`, of which the first one has training rows."""
    features = parts[0].train.features
    return {
        name: SetSizes.sum(found, features)
        for name in SET_NAMES
        if (found := [part.sets[name] for part in parts if name in part.sets])
    }


def read_part(
    part: Part, reading: PartReading, options: ReadOptions, cache: DataCache | None = None
) -> Piece:
    """Read a part with the options of its survey, encode its labels, scale and split it.

    DataError if the file has changed since its survey; UsageError if it does not fit into memory.
    """
    options = replace(options, lists=reading.encoding.kind == "multilabel")
    raw = read_rows(part.path, options, cache)
    _expect_unchanged(raw, part.digest)
    labels, scaler = encode(raw, reading.encoding), reading.fitted.scaler
    sets = split_rows(raw.rows, reading.fractions, (reading.seed, part.number))
    require_memory_for_copy(raw.inputs)
    return {
        name: Examples(scaled(raw.inputs, scaler, rows), take(labels, rows), reading.features)
        for name, rows in sets.items()
    }


def survey_held_out(
    name: SetName, path: Path, reading: PartReading, options: ReadOptions, cache: DataCache | None
) -> tuple[Part, RawSet]:
    """Read the file of set `name` (or that of a sample); return what servers get, and the rows.

    DataError if the file is invalid, or has labels or columns that the training data lack.
    """
    raw = _held_out_rows(path, reading, options, cache)
    sizes = reading.fitted.examples(raw, sparse=reading.sparse).sizes
    return Part(path=str(path), digest=digest_of(raw), sets={name: sizes}), raw


def read_held_out(
    file: Part, reading: PartReading, options: ReadOptions, cache: DataCache | None = None
) -> Piece:
    """Read held-out rows; DataError if the file has changed since its survey."""
    raw = _held_out_rows(file.path, reading, options, cache)
    _expect_unchanged(raw, file.digest)
    return {name: reading.fitted.examples(raw, sparse=reading.sparse) for name in file.sets}


def _held_out_rows(
    path: str | Path, reading: PartReading, options: ReadOptions, cache: DataCache | None
) -> RawSet:
    read = partial(read_as, file_of(path, "test"), cache=cache)
    return rows_like(reading.fitted, read, options)


def _expect_unchanged(raw: RawSet, digest: bytes) -> None:
    if digest_of(raw) != digest:
        raise DataError(
            f"{raw.source} has changed since this run read it first; start the run again"
        )


class ServerRows:
    """The rows of the parts `own` of `files`."""

    def __init__(self, files: DividedFiles, own: Sequence[int]) -> None:
        self._files = files
        self._own = [files.parts[number] for number in own]
        # (number, training rows) of each
        self.parts = tuple((number, files.parts[number].train.rows) for number in own)
        # By set: where each part starts among all rows, and by its number where it starts here.
        self._starts: dict[SetName, tuple[list[int], dict[int, int]]] = {}
        for name in SET_NAMES:
            sizes = [each.rows_of(name) for each in files.parts]
            if any(sizes):
                local = accumulate((sizes[number] for number in own), initial=0)
                starts = list(accumulate(sizes, initial=0))
                self._starts[name] = starts, dict(zip(own, local, strict=False))

    def read(self, options: ReadOptions, cache: DataCache | None) -> Segment:
        """Read the files, one after the other, with `options` into a new segment.

        DataError if one is invalid or has changed, UsageError if there is too little memory.
        """
        files = self._files
        layout = arrange(dataset.fields(sizes_of([*self._own, *files.held_out])))
        segment = Segment.create("data", layout, read_only=True)

        def pieces() -> Iterator[Piece]:
            for part in self._own:
                yield read_part(part, files.reading, options, cache)
            for file in files.held_out:
                yield read_held_out(file, files.reading, options, cache)

        dataset.fill(segment, pieces())
        return segment

    def local(self, lease: Lease) -> Lease:
        """`lease`, with positions among the rows of this server; it must have their part."""
        if lease.task not in self._starts:
            return lease
        starts, local = self._starts[lease.task]
        part = bisect_right(starts, lease.start) - 1
        start = local[part] + lease.start - starts[part]
        return structs.replace(lease, start=start, stop=start + lease.stop - lease.start)
