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
from hogbatch.data.sparse import Lines, SparseRows
from hogbatch.data.text import Block, TextFile, quoted
from hogbatch.errors import DataError


class Header(NamedTuple):
    """The first line."""

    rows: int
    features: int
    labels: int


def read(path: Path, options: Options) -> RawSet:
    """Read an XMC file; what the header says must hold."""
    file = TextFile(path)
    header, rest = _header(path, file.first)
    lines = Lines(path, libsvm=False, base=0)
    rows, facts = sparse.read_rows(file, rest, lines, options.threads)
    rows = _counted(rows, header, path)
    lists = sparse.label_lists(rows, facts, lines)
    _check_below(header, rows, lists, lines)
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
        raise DataError(
            f"{path}:1:1: expected the header 'rows features labels'; got {quoted(text)}"
        )
    if counts[0] == 0:
        raise DataError(f"{path}:1:1: the header promises no rows")
    return Header(*counts), Block(2, rest)


def _counted(rows: SparseRows, header: Header, path: Path) -> SparseRows:
    """Check the number of rows; blank lines after the last promised row are dropped."""
    if len(rows.lines) == header.rows:
        return rows
    promised = np.arange(len(rows.lines)) < header.rows
    if len(rows.lines) >= header.rows and sparse.blank(rows)[~promised].all():
        return sparse.keep(rows, promised)
    raise DataError(
        f"{path}:1:1: the header promises {header.rows} rows; the file has {len(rows.lines)}"
    )


def _check_below(header: Header, rows: SparseRows, lists: LabelLists, lines: Lines) -> None:
    for what, indptr, indices, count in (
        ("feature", rows.indptr, rows.indices, header.features),
        ("label", lists.indptr, lists.indices, header.labels),
    ):
        if indices.max(initial=-1) >= count:
            beyond = np.flatnonzero(indices >= count)
            line = rows.lines[csr.row_of(indptr, beyond[0])]
            place = lines.place(line, indices[beyond[0]], among_labels=what == "label")
            raise DataError(
                f"{place}: {what} {indices[beyond[0]]}, but the header promises {count} {what}s, "
                "counted from 0"
            )
