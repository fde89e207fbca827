"""Lines of labels and index:value pairs, "3,17 5:0.5 9:1": what libsvm and XMC text share.

This module covers what can be told of a line by itself, given the range of indices and of labels.
It does not cover what index 0 means, or the XMC header (see `libsvm` and `xmc`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.raw import MAX_INDEX, LabelLists
from hogbatch.data.skipped import Misplaced, Skipped
from hogbatch.data.text import Block, Counts, TextFile, number
from hogbatch.machine.printable import digits, quoted

COMMENT = re.compile(rb"#[^\n]*")
QUERY = re.compile(rb"(?<!\S)qid:\d+(?!\S)")
NOTHING: Counts = (0, 0, 0)
FIELD = re.compile(r"\S++(?:(?<=,) \S*+)*+")  # one blank may follow a comma


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
    skipped: Skipped = Skipped()

    @property
    def size(self) -> Counts:
        """How many rows, labels and values there are."""
        return len(self.rows.lines), len(self.rows.labels), len(self.rows.values)


@dataclass(frozen=True, slots=True)
class Lines:
    """How lines are read: see `text.Format`, which this is."""

    libsvm: bool  # comments and qid are skipped, and blank lines are no rows
    base: int  # what indices count from
    lowest: int = 0  # index that there may be
    features: int = MAX_INDEX + 1  # indices are below this
    labels: int | None = None  # labels are indices below this; None: any numbers

    def count(self, text: bytes) -> Counts:
        """Tell how many rows, labels and values `text` holds at most."""
        from hogbatch.data.parse import sparse as compiled

        counts: Counts = compiled.count(np.frombuffer(text, np.uint8))
        return counts

    def byte_size(self, counts: Counts) -> int:
        """Bytes of the room for so many rows, labels and values."""
        rows, labels, values = counts
        return 8 * (3 * rows + 2) + 8 * labels + 8 * values

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

    def parse(self, block: Block, room: SparseRows, begin: Counts, end: Counts) -> Part | None:
        """Read a block into its place; None when anything in it is unusual."""
        from hogbatch.data.parse import sparse as compiled

        text = np.frombuffer(block.text, np.uint8)
        usual, reached, facts = compiled.rows(
            text, block.first_line, self.libsvm, self.base, begin, end, room
        )
        if not usual:
            return None
        part = Part(_cut(room, begin, reached), Facts(*facts), begin, room)
        if self._plain(part.rows, part.facts):
            return part
        return None if self._sort(_from_zero(part)).any() else part

    def parse_lines(self, block: Block) -> Part:
        """Read a block line by line, without lines that have a mistake."""
        text = _clean(block.text) if self.libsvm else block.text
        contents = text.split(b"\n")[:-1]
        rows, mistaken = self._read(contents, block.first_line)
        facts = facts_of(rows, self.base)
        if not self._plain(rows, facts) and (flawed := self._sort(rows)).any():
            mistaken = sorted((*mistaken, *rows.lines[flawed].tolist()))
            rows = keep(rows, ~flawed)
            facts = facts_of(rows, self.base)
        skipped = Skipped.of(
            mistaken, lambda line: self._mistake(contents[line - block.first_line])
        )
        return Part(rows, facts, NOTHING, None, skipped)

    def _read(self, contents: Sequence[bytes], first_line: int) -> tuple[SparseRows, list[int]]:
        """Read lines; those that break the grammar come back by their numbers."""
        lines, label_ends, ends, mistaken = [], [0], [0], []
        labels: list[float] = []
        indices: list[int] = []
        values: list[float] = []
        for line, content in enumerate(contents, first_line):
            try:
                _parse_line(content.decode("ascii", "replace"), labels, indices, values)
            except Misplaced:
                mistaken.append(line)
                del labels[label_ends[-1] :], indices[ends[-1] :], values[ends[-1] :]
                continue
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
        return rows, mistaken

    def _plain(self, rows: SparseRows, facts: Facts) -> bool:
        """Whether the facts alone tell that features are sorted and all is within its range."""
        return (
            facts.ascending
            and self.lowest <= facts.lowest
            and facts.highest < self.features
            and (
                self.labels is None or (facts.listed and rows.labels.max(initial=-1) < self.labels)
            )
        )

    def _sort(self, rows: SparseRows) -> NDArray[np.bool_]:
        """Sort the features of each row in place; mark rows with a mistake: bool[N]."""
        order = csr.ascending_order(rows.indptr, rows.indices)
        if order is not None:
            rows.indices[:], rows.values[:] = rows.indices[order], rows.values[order]
        wrong = csr.repeats(rows.indptr, rows.indices)
        wrong |= rows.indices < self.lowest - self.base
        wrong |= rows.indices >= self.features - self.base
        flawed = np.zeros(len(rows.lines), np.bool_)
        flawed[csr.rows_of(rows.indptr)[wrong]] = True
        if self.labels is not None:
            wrong = ~(whole(rows.labels) & (rows.labels < self.labels))
            flawed[csr.rows_of(rows.label_indptr)[wrong]] = True
        return flawed

    def _mistake(self, content: bytes) -> Misplaced:
        """Tell what is wrong with a line, and where."""
        labels, fields = _places(content.decode("ascii", "replace"))
        seen = set()
        try:
            for at, token in labels:
                self._check_label(number(token, at), at)
            for at, token in fields:
                index, _ = _pair(token, at)
                self._check_index(index, at)
                if index in seen:
                    raise Misplaced(at, f"feature index {index} occurs twice in one row")
                seen.add(index)
        except Misplaced as mistake:
            return mistake
        raise AssertionError("nothing is wrong with the line")

    def _check_label(self, label: float, at: int) -> None:
        if self.labels is None:
            return
        if not whole(np.array(label)):
            raise not_listed(label, at)
        if label >= self.labels:
            raise Misplaced(at, f"label {label:.0f}, but {_promise(self.labels, 'labels')}")

    def _check_index(self, index: int, at: int) -> None:
        if index < self.lowest:
            raise Misplaced(
                at,
                "feature index 0, but features count from 1 here (as given, or as in the training "
                "file); if they count from 0, give --index-base 0",
            )
        if index >= self.features and self.libsvm:
            raise beyond(index, self.features - self.base, self.base, at)
        if index >= self.features:
            raise Misplaced(at, f"feature {index}, but {_promise(self.features, 'features')}")


def _promise(count: int, what: str) -> str:
    return f"the header promises {count} {what}, counted from 0"


def beyond(index: int, features: int, base: int, at: int | None) -> Misplaced:
    """What is wrong with an index where --features says how many `features` there are."""
    most = f"expected at most {features - 1 + base}"
    return Misplaced(at, f"feature index {index}; {most} (--features {features}, from {base})")


def not_listed(label: float, at: int | None) -> Misplaced:
    """What is wrong with a label that cannot stand in a list."""
    return Misplaced(
        at,
        "rows have lists of labels here (none or several in some row), so a label must be a whole "
        f"number from 0 on; got {digits(label)}",
    )


def _from_zero(part: Part) -> SparseRows:
    """The rows of a part, with pointers that count from its first label and value."""
    rows, (_, label, value) = part.rows, part.begin
    return rows._replace(
        label_indptr=np.concatenate(([0], rows.label_indptr[1:] - label)),
        indptr=np.concatenate(([0], rows.indptr[1:] - value)),
    )


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


def _places(content: str) -> tuple[list[Place], list[Place]]:
    """Split a line into labels and fields, and tell where they stand."""
    fields = [Place(found.start(), found[0]) for found in FIELD.finditer(content)]
    labels = []
    if fields and ":" not in fields[0].token:
        at, token = fields.pop(0)
        for label in token.split(","):
            bare = label.lstrip(" ")
            labels.append(Place(at + len(label) - len(bare), bare))
            at += len(label) + 1
    return labels, fields


def label_at(content: bytes, which: int) -> int:
    """Where a label stands in a line, from 0; at its start if there are not so many."""
    labels, _ = _places(_clean(content).decode("ascii", "replace"))
    return labels[which].at if which < len(labels) else 0


def _parse_line(content: str, labels: list[float], indices: list[int], values: list[float]) -> None:
    """Add what a line holds; Misplaced, at no place that counts, if it breaks the grammar."""
    fields = content.replace(", ", ",").split()
    if fields and ":" not in fields[0]:
        labels.extend(map(number, fields.pop(0).split(",")))
    for field in fields:
        index, value = _pair(field)
        indices.append(index)
        values.append(value)


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
        raise Misplaced(at, f"a feature index cannot be negative; got {quoted(token)}")
    if index > MAX_INDEX or index != int(index):
        raise Misplaced(
            at, f"expected a whole feature index up to {MAX_INDEX}; got {quoted(token)}"
        )
    return int(index)


def facts_of(rows: SparseRows, base: int) -> Facts:
    """Look at rows whose pointers count from 0."""
    none = MAX_INDEX - base
    return Facts(
        lowest=int(rows.indices.min(initial=none)) + base,
        highest=int(rows.indices.max(initial=-1 - base)) + base,
        ascending=_ascends(rows.indptr, rows.indices),
        single=bool((np.diff(rows.label_indptr) == 1).all()),
        listed=bool(whole(rows.labels).all())
        and _ascends(rows.label_indptr, rows.labels.astype(np.int32)),
    )


def _ascends(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> bool:
    return csr.ascending_order(indptr, indices) is None and not csr.repeats(indptr, indices).any()


def whole(labels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark labels that are indices."""
    whole: NDArray[np.bool_] = (labels >= 0) & (labels <= MAX_INDEX) & (labels == np.floor(labels))
    return whole


def read_rows(file: TextFile, rest: Block, lines: Lines) -> tuple[SparseRows, Facts, Skipped]:
    """Read all lines after a header; `rest` is what the header leaves of the first block."""
    parsed = file.parse(rest, lines)
    parts, room, skipped = parsed
    lowest, highest, *flags = zip(*(part.facts for part in parts), strict=True)
    return join(parts, room, lines), Facts(min(lowest), max(highest), *map(all, flags)), skipped


def join(parts: Sequence[Part], room: SparseRows | None, lines: Lines) -> SparseRows:
    """Put the rows of all parts one after another; what lies there already is not copied."""
    ends = np.cumsum([part.size for part in parts], axis=0).tolist()
    whole = lines.reserve(tuple(ends[-1])) if room is None else room
    begin = NOTHING
    for part, end in zip(parts, ends, strict=True):
        _move(part, whole, begin, end)
        begin = tuple(end)
    return _cut(whole, NOTHING, begin)


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
    """Copy the rows that are chosen[N]."""
    taken = np.flatnonzero(chosen)
    label_indptr, labels = csr.positions(rows.label_indptr, taken)
    indptr, values = csr.positions(rows.indptr, taken)
    return SparseRows(
        lines=rows.lines[taken],
        label_indptr=label_indptr,
        labels=rows.labels[labels],
        indptr=indptr,
        indices=rows.indices[values],
        values=rows.values[values],
    )


def label_lists(rows: SparseRows, facts: Facts) -> LabelLists:
    """Take whole labels as lists of indices from 0: sorted, and a label given twice kept once."""
    indptr, indices = rows.label_indptr, rows.labels.astype(np.int32)
    if facts.listed:
        return LabelLists(indptr, indices)
    order = csr.ascending_order(indptr, indices)
    indices = indices if order is None else indices[order]
    once = ~csr.repeats(indptr, indices)
    return LabelLists(np.concatenate(([0], np.cumsum(once)))[indptr], indices[once])
