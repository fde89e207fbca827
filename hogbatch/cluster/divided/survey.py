"""Reading a part, and what a plan needs to know about it."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.divided.records import (
    ListedLabels,
    Part,
    PartSurvey,
    SingleLabels,
    StoredMoments,
)
from hogbatch.data import csr
from hogbatch.data.cache import DataCache
from hogbatch.data.digest import of_arrays
from hogbatch.data.encode import expect_labelled
from hogbatch.data.later import require_memory_for_copy
from hogbatch.data.load import SplitRows, expect_fractions, split_rows, with_declared
from hogbatch.data.order import Fractions, RowNumbers
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.scale import ColumnMoments
from hogbatch.data.sizes import SetSizes
from hogbatch.data.table.rows import UnexpectedCell
from hogbatch.errors import DataError

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
    invalid file, or one with text. UsageError if it does not fit into memory, or for a fraction
    outside [0, 1).
    """
    expect_fractions(fractions)
    raw = read_rows(path, options, cache)
    expect_labelled(raw)
    require_memory_for_copy(raw.inputs)
    sets = split_part(raw.rows, fractions, seed, number)
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


def split_part(rows: int, fractions: Fractions, seed: int, number: int) -> SplitRows:
    """The rows of each set of part `number`; None: all."""
    return split_rows(rows, fractions, (seed, number))


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
