"""Parsing of lines with labels and index:value pairs, "3,17 5:0.5 9:1": libsvm and XMC text.

This module checks each line by itself, given the range of indices and labels. The meaning of index
0 and the XMC header are handled in `libsvm` and `xmc`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.raw import MAX_INDEX
from hogbatch.data.skipped import LineError, SkippedLines
from hogbatch.data.sparse_rows import (
    TYPES,
    Counts,
    RowSummary,
    SparseRows,
    allocate,
    is_index,
    join,
    keep,
    sizes,
    summary_of,
    view_of,
)
from hogbatch.data.text import TextBlock, TextFile, number
from hogbatch.machine.printable import digits, quoted

COMMENT = re.compile(rb"#[^\n]*")
QUERY_ID = re.compile(rb"(?<!\S)qid:\d+(?!\S)")
# A comma may be followed by one blank. Without possessive quantifiers, which are wrong in CPython
# 3.11.2, the Python of Debian 12.
FIELD = re.compile(r"(?:\S*, )+\S*|\S+")


class SparsePart(NamedTuple):
    """The rows parsed from a block of a file."""

    rows: SparseRows
    summary: RowSummary
    skipped: SkippedLines = SkippedLines()

    @property
    def size(self) -> Counts:
        """The number of rows, labels and values."""
        return len(self.rows.lines), len(self.rows.labels), len(self.rows.values)


@dataclass(frozen=True, slots=True)
class SparseFormat:
    """Parsing of sparse lines. All methods are called by several threads."""

    libsvm: bool  # skip comments, qid fields and blank lines
    base: int  # first index
    lowest: int = 0  # lowest valid index
    features: int = MAX_INDEX + 1  # upper bound of indices, exclusive
    labels: int | None = None  # upper bound of label indices; None: labels are any numbers

    def max_counts(self, text: bytes) -> Counts:
        """The maximum number of rows, labels and values in `text`."""
        from hogbatch.data.parse import sparse as compiled

        counts: Counts = compiled.count(np.frombuffer(text, np.uint8))
        return counts

    def byte_size(self, counts: Counts) -> int:
        """Bytes of buffers for these numbers of rows, labels and values."""
        return sum(map(mul, sizes(counts), (np.dtype(each).itemsize for each in TYPES)))

    def parse(self, block: TextBlock) -> SparsePart | None:
        """Parse a block; None if it contains an unusual line."""
        from hogbatch.data.parse import sparse as compiled

        buffers, text = allocate(self.max_counts(block.text)), np.frombuffer(block.text, np.uint8)
        usual, reached, summary = compiled.rows(
            text, block.first_line, self.libsvm, self.base, buffers
        )
        if not usual:
            return None
        part = SparsePart(view_of(buffers, reached), RowSummary(*summary))
        if self._known_valid(part.rows, part.summary):
            return part
        return None if self._sort(part.rows).any() else part

    def parse_lines(self, block: TextBlock) -> SparsePart:
        """Parse a block line by line, skipping malformed lines."""
        text = _strip_comments(block.text) if self.libsvm else block.text
        contents = text.split(b"\n")[:-1]
        rows, malformed = self._read(contents, block.first_line)
        summary = summary_of(rows, self.base)
        if not self._known_valid(rows, summary) and (invalid := self._sort(rows)).any():
            malformed = sorted((*malformed, *rows.lines[invalid].tolist()))
            rows = keep(rows, ~invalid)
            summary = summary_of(rows, self.base)
        skipped = SkippedLines.of(
            malformed, lambda line: self._diagnose(contents[line - block.first_line])
        )
        return SparsePart(rows, summary, skipped)

    def _read(self, contents: Sequence[bytes], first_line: int) -> tuple[SparseRows, list[int]]:
        """Parse lines; return the rows and the numbers of lines that violate the grammar."""
        lines, label_ends, ends, malformed = [], [0], [0], []
        labels: list[float] = []
        indices: list[int] = []
        values: list[float] = []
        for line, content in enumerate(contents, first_line):
            fields = content.decode("ascii", "replace").replace(", ", ",").split()
            try:
                if fields and ":" not in fields[0]:
                    labels += map(number, fields.pop(0).split(","))
                for field in fields:
                    index, value = _pair(field)
                    indices.append(index)
                    values.append(value)
            except LineError:
                malformed.append(line)
                del labels[label_ends[-1] :], indices[ends[-1] :], values[ends[-1] :]
                continue
            if len(labels) > label_ends[-1] or len(indices) > ends[-1] or not self.libsvm:
                lines.append(line)
                label_ends.append(len(labels))
                ends.append(len(indices))
        columns = lines, label_ends, labels, ends, indices, values
        rows = SparseRows(*map(np.array, columns, TYPES))
        rows.indices[:] -= self.base
        return rows, malformed

    def _known_valid(self, rows: SparseRows, summary: RowSummary) -> bool:
        """Whether the summary shows that features are sorted and indices and labels in range."""
        return (
            summary.ascending
            and self.lowest <= summary.lowest
            and summary.highest < self.features
            and (
                self.labels is None
                or (summary.listed and rows.labels.max(initial=-1) < self.labels)
            )
        )

    def _sort(self, rows: SparseRows) -> NDArray[np.bool_]:
        """Sort the features of each row in place; return which rows are malformed: bool[N]."""
        order = csr.ascending_order(rows.indptr, rows.indices)
        if order is not None:
            rows.indices[:], rows.values[:] = rows.indices[order], rows.values[order]
        wrong = csr.repeats(rows.indptr, rows.indices)
        wrong |= rows.indices < self.lowest - self.base
        wrong |= rows.indices >= self.features - self.base
        malformed = np.zeros(len(rows.lines), np.bool_)
        malformed[csr.rows_of(rows.indptr)[wrong]] = True
        if self.labels is not None:
            wrong = ~(is_index(rows.labels) & (rows.labels < self.labels))
            malformed[csr.rows_of(rows.label_indptr)[wrong]] = True
        return malformed

    def _diagnose(self, content: bytes) -> LineError:
        """The error in a malformed line, with its column."""
        labels, fields = _tokens(content.decode("ascii", "replace"))
        seen = set()
        try:
            for at, token in labels:
                label = number(token, at)
                if self.labels is not None and not is_index(np.array(label)):
                    raise not_listed(label, at)
                if self.labels is not None and label >= self.labels:
                    declared = f"the header declares {self.labels} labels, counted from 0"
                    raise LineError(at, f"label {label:.0f}, but {declared}")
            for at, token in fields:
                index, _ = _pair(token, at)
                self._check_index(index, at)
                if index in seen:
                    raise LineError(at, f"feature index {index} occurs twice in one row")
                seen.add(index)
        except LineError as error:
            return error
        raise AssertionError("the line is not malformed")

    def _check_index(self, index: int, at: int) -> None:
        if index < self.lowest:
            raise LineError(
                at,
                "feature index 0, but features are counted from 1 here (as given, or as in the "
                "training file); if they are counted from 0, use --index-base 0",
            )
        if index >= self.features and self.libsvm:
            raise out_of_range(index, self.features - self.base, self.base, at)
        if index >= self.features:
            declared = f"the header declares {self.features} features, counted from 0"
            raise LineError(at, f"feature {index}, but {declared}")


def out_of_range(index: int, features: int, base: int, at: int | None) -> LineError:
    """The error for an index beyond the number of `features` given with --features."""
    limit = f"expected at most {features - 1 + base}"
    return LineError(at, f"feature index {index}; {limit} (--features {features}, from {base})")


def not_listed(label: float, at: int | None) -> LineError:
    """The error for a label that is not an index, in a file with lists of labels."""
    return LineError(
        at,
        "labels are lists in this file (some row has none or several), so each label must be a "
        f"whole number >= 0; got {digits(label)}",
    )


def _strip_comments(text: bytes) -> bytes:
    """Remove comments, and replace query ids by blanks so that columns do not change."""
    text = COMMENT.sub(b"", text) if b"#" in text else text
    return QUERY_ID.sub(lambda found: b" " * len(found[0]), text) if b"qid:" in text else text


class Token(NamedTuple):
    """A label or field of a line."""

    at: int  # position in the line, from 0
    text: str


def _tokens(content: str) -> tuple[list[Token], list[Token]]:
    """Split a line into labels and fields, with their positions."""
    fields = [Token(found.start(), found[0]) for found in FIELD.finditer(content)]
    labels = []
    if fields and ":" not in fields[0].text:
        at, token = fields.pop(0)
        for label in token.split(","):
            bare = label.lstrip(" ")
            labels.append(Token(at + len(label) - len(bare), bare))
            at += len(label) + 1
    return labels, fields


def labels_in(content: bytes) -> list[Token]:
    """The labels of a line of libsvm text."""
    return _tokens(_strip_comments(content).decode("ascii", "replace"))[0]


def _pair(field: str, at: int = 0) -> tuple[int, float]:
    index, colon, value = field.partition(":")
    if not colon:
        raise LineError(at, f"expected index:value; got {quoted(field)}")
    return _index(index, at), number(value, at + len(index) + 1)


def _index(token: str, at: int) -> int:
    if token.isdigit() and len(token) < 10 and token.isascii():
        return int(token)
    index = number(token, at)
    if index < 0:
        raise LineError(at, f"a feature index cannot be negative; got {quoted(token)}")
    if index > MAX_INDEX or index != int(index):
        raise LineError(
            at, f"expected a whole feature index up to {MAX_INDEX}; got {quoted(token)}"
        )
    return int(index)


def read_rows(
    file: TextFile, rest: TextBlock, line_format: SparseFormat
) -> tuple[SparseRows, RowSummary, SkippedLines]:
    """Parse all lines after a header; `rest` is the first block without the header."""
    parts, skipped = file.parse(rest, line_format)
    lowest, highest, *flags = zip(*(part.summary for part in parts), strict=True)
    summary = RowSummary(min(lowest), max(highest), *map(all, flags))
    return join([part.rows for part in parts]), summary, skipped
