"""XMC text: a header "rows features labels", then "label,label feature:value ..." a line.

As in the Extreme Classification Repository: indices count from 0, and a row may have no labels
or no features.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hogbatch.data import csr, sparse
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import MAX_INDEX, LabelLists, Options, RawSet
from hogbatch.data.sparse import SparseRows
from hogbatch.data.text import Block, blocks, quoted
from hogbatch.errors import DataError


class Header(NamedTuple):
    """The first line."""

    rows: int
    features: int
    labels: int


def read(path: Path, options: Options) -> RawSet:
    """Read an XMC file; what the header says must hold."""
    stream = blocks(path)
    header, rest = _header(path, next(stream, Block(1, b"")))
    parts = [sparse.parse(rest, path), *(sparse.parse(block, path) for block in stream)]
    rows = sparse.ascending(_counted(sparse.join(parts), header, path), path)
    lists = sparse.label_lists(rows, path)
    _check_below(header, rows, lists, path)
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=header.features,
        labels=None,
        label_lists=lists,
        source=str(path),
        classes_hint=header.labels,
        index_base=0,
        lines=rows.lines,
    )


def _header(path: Path, block: Block) -> tuple[Header, Block]:
    """Split the header line off the first block."""
    line, _, rest = block.text.partition(b"\n")
    text = line.decode("ascii", "replace")
    counts = [int(field) for field in text.split() if field.isascii() and field.isdigit()]
    if len(counts) != 3 or len(text.split()) != 3 or max(counts[1:]) > MAX_INDEX + 1:
        raise DataError(f"{path}:1: expected the header 'rows features labels'; got {quoted(text)}")
    if counts[0] == 0:
        raise DataError(f"{path}:1: the header promises no rows")
    return Header(*counts), Block(2, rest)


def _counted(rows: SparseRows, header: Header, path: Path) -> SparseRows:
    """Check the number of rows; blank lines after the last promised row are dropped."""
    promised = np.arange(len(rows.lines)) < header.rows
    if len(rows.lines) >= header.rows and sparse.blank(rows)[~promised].all():
        return sparse.keep(rows, promised)
    raise DataError(
        f"{path}:1: the header promises {header.rows} rows; the file has {len(rows.lines)}"
    )


def _check_below(header: Header, rows: SparseRows, lists: LabelLists, path: Path) -> None:
    for what, indptr, indices, count in (
        ("feature", rows.indptr, rows.indices, header.features),
        ("label", lists.indptr, lists.indices, header.labels),
    ):
        beyond = np.flatnonzero(indices >= count)
        if len(beyond):
            line = rows.lines[csr.row_of(indptr, beyond[0])]
            raise DataError(
                f"{path}:{line}: {what} {indices[beyond[0]]}, but the header promises {count} "
                f"{what}s, counted from 0"
            )
