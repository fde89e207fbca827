"""Lines of labels and index:value pairs, "3,17 5:0.5 9:1": what libsvm and XMC text share.

This module covers the grammar of a line. It does not cover what index 0 means, or the XMC header
(see `libsvm` and `xmc`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.raw import MAX_INDEX, LabelLists
from hogbatch.data.text import Block, Counts, Misplaced, TextFile, line_at, number, quoted
from hogbatch.errors import DataError

COMMENT = re.compile(rb"#[^\n]*")
QUERY = re.compile(rb"(?<!\S)qid:\d+(?!\S)")
NOTHING: Counts = (0, 0, 0)
FIELD = re.compile(r"(?:, |\S)+")  # one blank may follow a comma


class SparseRows(NamedTuple):
    """Rows in the order of the file, any number of labels a row."""

    lines: NDArray[np.int64]  # [N]
    label_indptr: NDArray[np.int64]  # [N + 1]
    labels: NDArray[np.float64]
    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int32]  # less the base of the format
    values: NDArray[np.float32]


class Facts(NamedTuple):
    """What was seen while the rows were read, so that nobody has to look again."""

    lowest: int = MAX_INDEX  # index
    highest: int = -1
    ascending: bool = True  # indices, strictly, within each row
    single: bool = True  # each row has one label
    listed: bool = True  # labels are indices, and ascend strictly within each row


class Part(NamedTuple):
    """Some rows of a file."""

    rows: SparseRows
    facts: Facts
    begin: Counts  # where they begin in their room: what their pointers count from
    room: SparseRows | None  # where they lie; None: in room of their own


@dataclass(frozen=True, slots=True)
class Lines:
    """How lines are read: see `text.Format`, which this is."""

    source: Path
    libsvm: bool  # comments and qid are skipped, and blank lines are no rows
    base: int  # what indices count from

    def count(self, text: bytes) -> Counts:
        """Tell how many rows, labels and values `text` holds at most."""
        from hogbatch.data.parse import sparse as compiled

        counts: Counts = compiled.count(np.frombuffer(text, np.uint8))
        return counts

    def reserve(self, counts: Counts) -> SparseRows:
        """Make room for so many rows, labels and values."""
        rows, labels, values = counts
        return SparseRows(
            lines=np.empty(rows, np.int64),
            label_indptr=np.zeros(rows + 1, np.int64),
            labels=np.empty(labels, np.float64),
            indptr=np.zeros(rows + 1, np.int64),
            indices=np.empty(values, np.int32),
            values=np.empty(values, np.float32),
        )

    def parse(self, block: Block, room: SparseRows, begin: Counts, end: Counts) -> Part:
        """Read a block into its place, or line by line when anything in it is unusual."""
        from hogbatch.data.parse import sparse as compiled

        text = np.frombuffer(block.text, np.uint8)
        usual, reached, facts = compiled.rows(
            text, block.first_line, self.libsvm, self.base, begin, end, room
        )
        if not usual:
            part = self.parse_lines(block)
            if any(n > e - b for n, b, e in zip(_size(part.rows), begin, end, strict=True)):
                raise DataError(f"{self.source} changed while it was read")
            return part
        return Part(_cut(room, begin, reached), Facts(*facts), begin, room)

    def parse_lines(self, block: Block) -> Part:
        """Read a block line by line; DataError names the place of the first mistake."""
        text = _clean(block.text) if self.libsvm else block.text
        lines, label_ends, ends = [], [0], [0]
        labels: list[float] = []
        indices: list[int] = []
        values: list[float] = []
        for line, content in enumerate(text.split(b"\n")[:-1], block.first_line):
            try:
                _parse_line(content.decode("ascii", "replace"), labels, indices, values)
            except Misplaced as error:
                raise DataError(f"{self.source}:{line}:{error.column}: {error}") from None
            if len(labels) > label_ends[-1] or len(indices) > ends[-1] or not self.libsvm:
                lines.append(line)
                label_ends.append(len(labels))
                ends.append(len(indices))
        rows = SparseRows(
            lines=np.array(lines, np.int64),
            label_indptr=np.array(label_ends, np.int64),
            labels=np.array(labels, np.float64),
            indptr=np.array(ends, np.int64),
            indices=np.array(indices, np.int32) - np.int32(self.base),
            values=np.array(values, np.float32),
        )
        return Part(rows, _facts(rows, self.base), NOTHING, None)

    def place(
        self, line: int, number: float, *, among_labels: bool = False, occurrence: int = 0
    ) -> str:
        """Find a feature index or a label in its line: file:line:column."""
        if not self.source.is_file():  # a pipe cannot be read again
            return f"{self.source}:{line}"
        content = line_at(self.source, line)
        text = _clean(content) if self.libsvm else content
        labels, fields = _fields(text.decode("ascii", "replace"))
        places = labels if among_labels else fields
        columns = [at + 1 for at, token in places if float(token.partition(":")[0]) == number]
        return f"{self.source}:{line}:{columns[occurrence]}"


def _cut(room: SparseRows, begin: Counts, end: Counts) -> SparseRows:
    """View the rows, labels and values from `begin` to `end`."""
    rows, ends = slice(begin[0], end[0]), slice(begin[0], end[0] + 1)
    labels, values = slice(begin[1], end[1]), slice(begin[2], end[2])
    return SparseRows(
        lines=room.lines[rows],
        label_indptr=room.label_indptr[ends],
        labels=room.labels[labels],
        indptr=room.indptr[ends],
        indices=room.indices[values],
        values=room.values[values],
    )


def _clean(text: bytes) -> bytes:
    """Blank query ids out, so that all else keeps its column, and drop comments."""
    text = COMMENT.sub(b"", text) if b"#" in text else text
    return QUERY.sub(lambda found: b" " * len(found[0]), text) if b"qid:" in text else text


class Place(NamedTuple):
    """A piece of a line."""

    at: int  # from 0
    token: str


def _fields(content: str) -> tuple[list[Place], list[Place]]:
    """Split a line into labels and fields."""
    fields = [Place(found.start(), found[0]) for found in FIELD.finditer(content)]
    labels = []
    if fields and ":" not in fields[0].token:
        at, token = fields.pop(0)
        for label in token.split(","):
            bare = label.lstrip(" ")
            labels.append(Place(at + len(label) - len(bare), bare))
            at += len(label) + 1
    return labels, fields


def _parse_line(content: str, labels: list[float], indices: list[int], values: list[float]) -> None:
    fields = content.replace(", ", ",").split()
    try:
        if fields and ":" not in fields[0]:
            labels.extend(map(number, fields.pop(0).split(",")))
        for field in fields:
            index, value = _pair(field)
            indices.append(index)
            values.append(value)
    except Misplaced:
        _find_mistake(content)


def _find_mistake(content: str) -> None:
    """Raise what is Misplaced in a line, this time with its place."""
    labels, fields = _fields(content)
    for at, token in labels:
        number(token, at)
    for at, token in fields:
        _pair(token, at)


def _pair(field: str, at: int = 0) -> tuple[int, float]:
    index, colon, value = field.partition(":")
    if not colon:
        raise Misplaced(at, f"expected index:value; got {quoted(field)}")
    return _index(index, at), number(value, at + len(index) + 1)


def _index(token: str, at: int) -> int:
    if token.isdigit() and len(token) < 10 and token.isascii():
        return int(token)
    index = number(token, at)
    if index < 0:
        raise Misplaced(at, f"a feature index cannot be negative; got {token}")
    if index > MAX_INDEX or index != int(index):
        raise Misplaced(at, f"expected a whole feature index up to {MAX_INDEX}; got {token}")
    return int(index)


def _facts(rows: SparseRows, base: int) -> Facts:
    none = MAX_INDEX - base
    return Facts(
        lowest=int(rows.indices.min(initial=none)) + base,
        highest=int(rows.indices.max(initial=-1 - base)) + base,
        ascending=_ascends(rows.indptr, rows.indices),
        single=bool((np.diff(rows.label_indptr) == 1).all()),
        listed=bool(_whole(rows.labels).all())
        and _ascends(rows.label_indptr, rows.labels.astype(np.int32)),
    )


def _ascends(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> bool:
    return csr.ascending_order(indptr, indices) is None and not csr.repeats(indptr, indices).any()


def _whole(labels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark labels that are indices."""
    whole: NDArray[np.bool_] = (labels >= 0) & (labels <= MAX_INDEX) & (labels == np.floor(labels))
    return whole


def read_rows(
    file: TextFile, rest: Block, lines: Lines, threads: int | None
) -> tuple[SparseRows, Facts]:
    """Read all lines after a header; `rest` is what the header leaves of the first block."""
    parsed = file.parse(rest, lines, threads)
    parts, room = parsed
    lowest, highest, *flags = zip(*(part.facts for part in parts), strict=True)
    facts = Facts(min(lowest), max(highest), *map(all, flags))
    rows = join(parts, room, lines)
    return (rows if facts.ascending else _ascending(rows, lines)), facts


def join(parts: Sequence[Part], room: SparseRows | None, lines: Lines) -> SparseRows:
    """Put the rows of all parts one after another; what lies there already is not copied."""
    ends = np.cumsum([_size(part.rows) for part in parts], axis=0).tolist()
    whole = lines.reserve(tuple(ends[-1])) if room is None else room
    begin = NOTHING
    for part, end in zip(parts, ends, strict=True):
        _move(part, whole, begin, end)
        begin = tuple(end)
    return _cut(whole, NOTHING, begin)


def _size(rows: SparseRows) -> Counts:
    return len(rows.lines), len(rows.labels), len(rows.values)


def _move(part: Part, room: SparseRows, begin: Counts, end: Counts) -> None:
    """Bring a part to its final place, which is never behind where it lies in the same room."""
    place = _cut(room, begin, end)
    rows, labels, values = (
        part.room is not room or old != new for old, new in zip(part.begin, begin, strict=True)
    )
    if rows:
        place.lines[:] = part.rows.lines
    if labels:
        place.labels[:] = part.rows.labels
    if values:
        place.indices[:] = part.rows.indices
        place.values[:] = part.rows.values
    if rows or labels:
        place.label_indptr[1:] = part.rows.label_indptr[1:] + (begin[1] - part.begin[1])
    if rows or values:
        place.indptr[1:] = part.rows.indptr[1:] + (begin[2] - part.begin[2])


def keep(rows: SparseRows, chosen: NDArray[np.bool_]) -> SparseRows:
    """Drop the rows that are not chosen[N]; these must be blank, without labels and features."""
    ends = np.concatenate(([True], chosen))
    return rows._replace(
        lines=rows.lines[chosen], label_indptr=rows.label_indptr[ends], indptr=rows.indptr[ends]
    )


def blank(rows: SparseRows) -> NDArray[np.bool_]:
    """Mark rows with neither labels nor features: bool[N]."""
    none: NDArray[np.bool_] = (np.diff(rows.indptr) == 0) & (np.diff(rows.label_indptr) == 0)
    return none


def _ascending(rows: SparseRows, lines: Lines) -> SparseRows:
    """Sort the features of each row; one that occurs twice in a row is a DataError."""
    order = csr.ascending_order(rows.indptr, rows.indices)
    if order is not None:
        rows = rows._replace(indices=rows.indices[order], values=rows.values[order])
    repeated = np.flatnonzero(csr.repeats(rows.indptr, rows.indices))
    if len(repeated):
        line = rows.lines[csr.row_of(rows.indptr, repeated[0])]
        index = rows.indices[repeated[0]] + lines.base
        place = lines.place(line, index, occurrence=1)
        raise DataError(f"{place}: feature index {index} occurs twice in one row")
    return rows


def label_lists(rows: SparseRows, facts: Facts, lines: Lines) -> LabelLists:
    """Take labels as lists of indices from 0: sorted, and a label given twice kept once."""
    if facts.listed:
        return LabelLists(rows.label_indptr, rows.labels.astype(np.int32))
    whole = _whole(rows.labels)
    if not whole.all():
        first = int(np.argmin(whole))
        label = rows.labels[first]
        line = rows.lines[csr.row_of(rows.label_indptr, first)]
        raise DataError(
            f"{lines.place(line, label, among_labels=True)}: rows have lists of labels here (none "
            f"or several in some row), so a label must be a whole number from 0 on; got {label:g}"
        )
    indptr, indices = rows.label_indptr, rows.labels.astype(np.int32)
    order = csr.ascending_order(indptr, indices)
    indices = indices if order is None else indices[order]
    once = ~csr.repeats(indptr, indices)
    return LabelLists(np.concatenate(([0], np.cumsum(once)))[indptr], indices[once])
