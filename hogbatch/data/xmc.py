"""XMC text: a header "rows features labels", then one line "label,label feature:value ..." per row.

This is the format of the Extreme Classification Repository: indices are counted from 0, and a row
may have no labels or no features.
"""

import re
from typing import NamedTuple

import numpy as np

from hogbatch.data import sparse, sparse_rows
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import MAX_INDEX, RawSet, ReadOptions
from hogbatch.data.source import Source
from hogbatch.data.sparse import SparseFormat
from hogbatch.data.sparse_rows import SparseRows
from hogbatch.data.text import TextBlock, TextFile
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

HEADER_LINES = 1
NUMBER = re.compile(r"[0-9]{1,19}")


class Header(NamedTuple):
    """The numbers in the first line."""

    rows: int
    features: int
    labels: int


def read(path: Source, options: ReadOptions) -> RawSet:
    """Read an XMC file; it must agree with its header."""
    file = TextFile(path, options)
    header, rest = _header(path, file.first)
    line_format = SparseFormat(libsvm=False, base=0, features=header.features, labels=header.labels)
    rows, summary, skipped = sparse.read_rows(file, rest, line_format)
    rows = _check_row_count(rows, header, skipped.total, path)
    # Again: blank lines at the end are not rows.
    skipped.check(path, len(rows.lines), options.bad_lines)
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=header.features,
        labels=None,
        label_lists=sparse_rows.label_lists(rows, summary),
        source=str(path),
        classes_hint=header.labels,
        index_base=0,
        lines=rows.lines,
        skipped=skipped,
    )


def _header(path: Source, block: TextBlock) -> tuple[Header, TextBlock]:
    """Split the header line off the first block."""
    line, _, rest = block.text.partition(b"\n")
    text = line.decode("ascii", "replace")
    counts = [int(field) for field in text.split() if NUMBER.fullmatch(field)]
    if len(counts) != 3 or len(text.split()) != 3 or max(counts[1:]) > MAX_INDEX + 1:
        raise DataError(
            f"{path}:1:1: expected the header 'rows features labels'; got {quoted(text)}"
        )
    if counts[0] == 0:
        raise DataError(f"{path}:1:1: the header declares 0 rows")
    return Header(*counts), TextBlock(2, rest)


def _check_row_count(rows: SparseRows, header: Header, skipped: int, path: Source) -> SparseRows:
    """Check the number of rows; drop blank lines after the last row."""
    last = HEADER_LINES + header.rows
    count = int(np.searchsorted(rows.lines, last, side="right"))
    blank = (
        rows.indptr[count] == rows.indptr[-1] and rows.label_indptr[count] == rows.label_indptr[-1]
    )
    if count + skipped != header.rows or not blank:
        raise DataError(
            f"{path}:1:1: the header declares {header.rows} rows; "
            f"the file has {len(rows.lines) + skipped}"
        )
    return sparse_rows.view_of(rows, (count, len(rows.labels), len(rows.values)))
