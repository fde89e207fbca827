"""Reading parts, and files of held-out rows, as rows for kernels."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from hogbatch.cluster.divided.records import HeldOutFile, HeldOutSurvey, Part, PartReading
from hogbatch.cluster.divided.survey import digest_of, read_rows, split_part
from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.data.batch import Examples
from hogbatch.data.cache import DataCache
from hogbatch.data.encode import encode
from hogbatch.data.later import (
    examples_of_held_out,
    expect_labels,
    options_for_held_out,
    require_memory_for_copy,
    rows_as,
)
from hogbatch.data.order import take
from hogbatch.data.raw import RawSet
from hogbatch.data.scale import scaled
from hogbatch.data.sizes import SetSizes
from hogbatch.errors import DataError

Piece: TypeAlias = Mapping[SetName, Examples]  # rows to add to the sets of a server


def sizes_of(
    parts: Sequence[Part], held_out: Mapping[SetName, HeldOutFile]
) -> dict[SetName, SetSizes]:
    """The sizes of the sets of rows of `parts` (at least one), and of files of held-out rows."""
    features = parts[0].train.features
    sizes: dict[SetName, SetSizes] = {}
    for name in SET_NAMES:
        if name in held_out:
            sizes[name] = held_out[name].sizes
        elif found := [part.sets[name] for part in parts if name in part.sets]:
            sizes[name] = SetSizes.sum(found, features)
    return sizes


def read_in_turn(
    parts: Sequence[Part],
    held_out: Mapping[SetName, HeldOutFile],
    reading: PartReading,
    cache: DataCache | None = None,
) -> Iterator[Piece]:
    """Yield the rows of each part, then those of files; for `dataset.fill_in_turn`.

    Each is read when it is asked for. Errors are those of `read_part` and `read_held_out`.
    """
    for part in parts:
        yield read_part(part, reading, cache)
    for name, file in held_out.items():
        yield {name: read_held_out(file, reading, cache)}


def read_part(part: Part, reading: PartReading, cache: DataCache | None = None) -> Piece:
    """Read a part, encode its labels, scale and split it.

    DataError if the file has changed since its survey; UsageError if it does not fit into memory.
    """
    raw = read_rows(part.path, reading.options, cache)
    _expect_unchanged(raw, part.digest)
    labels, scaler = encode(raw, reading.encoding), reading.scaler
    sets = split_part(raw.rows, reading.fractions, reading.seed, part.number)
    require_memory_for_copy(raw.inputs)
    return {
        name: Examples(scaled(raw.inputs, scaler, rows), take(labels, rows), reading.features)
        for name, rows in sets.items()
    }


def survey_held_out(
    path: str | Path, reading: PartReading, cache: DataCache | None = None
) -> HeldOutSurvey:
    """Read a file of held-out rows (or that of a sample), and return what is needed to plan a run.

    DataError if the file is invalid, or has labels or columns that the training data lack.
    """
    raw = _held_out_rows(path, reading, cache)
    file = HeldOutFile(str(path), digest_of(raw), _held_out(raw, reading).sizes)
    return HeldOutSurvey(file, raw.skipped.total, raw.messages)


def read_held_out(
    file: HeldOutFile, reading: PartReading, cache: DataCache | None = None
) -> Examples:
    """Read held-out rows; DataError if the file has changed since its survey."""
    raw = _held_out_rows(file.path, reading, cache)
    _expect_unchanged(raw, file.digest)
    return _held_out(raw, reading)


def _held_out_rows(path: str | Path, reading: PartReading, cache: DataCache | None) -> RawSet:
    options = options_for_held_out(
        reading.options, reading.columns, reading.index_base, reading.features
    )
    raw = rows_as(path, options, cache)
    expect_labels(raw, reading.columns)
    return raw


def _held_out(raw: RawSet, reading: PartReading) -> Examples:
    return examples_of_held_out(
        raw, reading.encoding, reading.scaler, reading.features, sparse=reading.sparse
    )


def _expect_unchanged(raw: RawSet, digest: bytes) -> None:
    if digest_of(raw) != digest:
        raise DataError(
            f"{raw.source} has changed since this run read it first; start the run again"
        )
