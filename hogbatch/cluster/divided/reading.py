"""Reading parts, and a separate test file, as rows for kernels."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hogbatch.cluster.divided.records import HeldOutFile, HeldOutSurvey, Part, PartReading
from hogbatch.cluster.divided.survey import digest_of, read_rows, split_part
from hogbatch.data.batch import Examples
from hogbatch.data.cache import DataCache
from hogbatch.data.encode import encode
from hogbatch.data.load import (
    examples_of_test_file,
    expect_labels,
    options_for_test_file,
    require_memory_for_copy,
    rows_as,
)
from hogbatch.data.order import take
from hogbatch.data.raw import RawSet
from hogbatch.data.scale import scaled
from hogbatch.data.sizes import SetSizes
from hogbatch.errors import DataError


class Piece(NamedTuple):
    """Rows to add to the training set and to the test set of a server."""

    train: Examples | None
    test: Examples | None


def sizes_of(
    parts: Sequence[Part], held_out: HeldOutFile | None
) -> tuple[SetSizes, SetSizes | None]:
    """The sizes of the training rows of `parts` (at least one), and of the test rows, if any."""
    features = parts[0].train.features
    train = SetSizes.sum((part.train for part in parts), features)
    if held_out is not None:
        return train, held_out.sizes
    tests = [part.test for part in parts if part.test is not None]
    return train, SetSizes.sum(tests, features) if tests else None


def read_in_turn(
    parts: Sequence[Part],
    held_out: HeldOutFile | None,
    reading: PartReading,
    cache: DataCache | None = None,
) -> Iterator[Piece]:
    """Yield the rows of each part, then those of the test file; for `dataset.fill_in_turn`.

    Each is read when it is asked for. Errors are those of `read_part` and `read_held_out`.
    """
    for part in parts:
        yield read_part(part, reading, cache)
    if held_out is not None:
        yield Piece(None, read_held_out(held_out, reading, cache))


def read_part(part: Part, reading: PartReading, cache: DataCache | None = None) -> Piece:
    """Read a part, encode its labels, scale and split it.

    DataError if the file has changed since its survey; UsageError if it does not fit into memory.
    """
    raw = read_rows(part.path, reading.options, cache)
    _expect_unchanged(raw, part.digest)
    labels, scaler = encode(raw, reading.encoding), reading.scaler
    training, testing = split_part(raw.rows, reading.test_fraction, reading.seed, part.number)
    require_memory_for_copy(raw.inputs)
    sets = [
        Examples(scaled(raw.inputs, scaler, rows), take(labels, rows), reading.features)
        for rows in ((training,) if testing is None else (training, testing))
    ]
    return Piece(sets[0], sets[1] if testing is not None else None)


def survey_held_out(
    path: str | Path, reading: PartReading, cache: DataCache | None = None
) -> HeldOutSurvey:
    """Read a test file (or that of a sample), and return what is needed to plan a run.

    DataError if the file is invalid, or has labels or columns that the training data lack.
    """
    raw = _held_out_rows(path, reading, cache)
    file = HeldOutFile(str(path), digest_of(raw), _held_out(raw, reading).sizes)
    return HeldOutSurvey(file, raw.skipped.total, raw.messages)


def read_held_out(
    file: HeldOutFile, reading: PartReading, cache: DataCache | None = None
) -> Examples:
    """Read the test rows; DataError if the file has changed since its survey."""
    raw = _held_out_rows(file.path, reading, cache)
    _expect_unchanged(raw, file.digest)
    return _held_out(raw, reading)


def _held_out_rows(path: str | Path, reading: PartReading, cache: DataCache | None) -> RawSet:
    options = options_for_test_file(
        reading.options, reading.columns, reading.index_base, reading.features
    )
    raw = rows_as(path, options, cache)
    expect_labels(raw, reading.columns)
    return raw


def _held_out(raw: RawSet, reading: PartReading) -> Examples:
    return examples_of_test_file(
        raw, reading.encoding, reading.scaler, reading.features, sparse=reading.sparse
    )


def _expect_unchanged(raw: RawSet, digest: bytes) -> None:
    if digest_of(raw) != digest:
        raise DataError(
            f"{raw.source} has changed since this run read it first; start the run again"
        )
