"""XMC text: a header "rows features labels", then "label,label feature:value ..." a line.

As in the Extreme Classification Repository: indices count from 0, and a row may have no labels
or no features.
"""

import re
from typing import NamedTuple

import numpy as np

from hogbatch.data import sparse
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import MAX_INDEX, Options, RawSet
from hogbatch.data.source import Source
from hogbatch.data.sparse import Lines, SparseRows
from hogbatch.data.text import Block, TextFile
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

HEADER_LINES = 1
NUMBER = re.compile(r"[0-9]{1,19}")


class Header(NamedTuple):
    """The first line."""

    rows: int
    features: int
    labels: int


def read(path: Source, options: Options) -> RawSet:
    """Read an XMC file; what the header says must hold."""
    file = TextFile(path, options)
    header, rest = _header(path, file.first)
    lines = Lines(libsvm=False, base=0, features=header.features, labels=header.labels)
    rows, facts, skipped = sparse.read_rows(file, rest, lines)
    rows = _counted(rows, header, skipped.total, path)
    skipped.check(path, len(rows.lines), options.bad_lines)  # blank lines at the end are no rows
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=header.features,
        labels=None,
        label_lists=sparse.label_lists(rows, facts),
        source=str(path),
        classes_hint=header.labels,
        index_base=0,
        lines=rows.lines,
        skipped=skipped,
    )


def _header(path: Source, block: Block) -> tuple[Header, Block]:
    """Split the header line off the first block."""
    line, _, rest = block.text.partition(b"\n")
    text = line.decode("ascii", "replace")
    counts = [int(field) for field in text.split() if NUMBER.fullmatch(field)]
    if len(counts) != 3 or len(text.split()) != 3 or max(counts[1:]) > MAX_INDEX + 1:
        raise DataError(
            f"{path}:1:1: expected the header 'rows features labels'; got {quoted(text)}"
        )
    if counts[0] == 0:
        raise DataError(f"{path}:1:1: the header promises no rows")
    return Header(*counts), Block(2, rest)


def _counted(rows: SparseRows, header: Header, skipped: int, path: Source) -> SparseRows:
    """Check the number of rows; blank lines after the last promised row are dropped."""
    last = HEADER_LINES + header.rows
    count = int(np.searchsorted(rows.lines, last, side="right"))
    blank = (
        rows.indptr[count] == rows.indptr[-1] and rows.label_indptr[count] == rows.label_indptr[-1]
    )
    if count + skipped != header.rows or not blank:
        raise DataError(
            f"{path}:1:1: the header promises {header.rows} rows; "
            f"the file has {len(rows.lines) + skipped}"
        )
    return rows._replace(
        lines=rows.lines[:count],
        label_indptr=rows.label_indptr[: count + 1],
        indptr=rows.indptr[: count + 1],
    )
