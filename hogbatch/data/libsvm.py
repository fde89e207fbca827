"""svmlight/libsvm text: "label index:value ..." or "label,label index:value ...", one row a line.

Comments run from # to the end of the line, qid:N is ignored, blank lines are no rows, and a row
without labels starts with a blank or with its first index:value.
"""

import re
from pathlib import Path

import numpy as np

from hogbatch.data import csr, sparse
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import Options, RawSet
from hogbatch.data.sparse import SparseRows
from hogbatch.data.text import Block, blocks
from hogbatch.errors import DataError

COMMENT = re.compile(rb"#[^\n]*")
QUERY = re.compile(rb"(?<!\S)qid:\d+(?!\S)")


def read(path: Path, options: Options) -> RawSet:
    """Read a libsvm file. Features count from 0 if index 0 occurs, else from 1, unless told."""
    parts = [sparse.parse(_clean(block), path) for block in blocks(path)]
    rows = sparse.join(parts) if parts else None
    if rows is None or sparse.blank(rows).all():
        raise DataError(f"{path} is empty: expected rows like '+1 3:0.5 7:1'")
    rows = sparse.ascending(sparse.keep(rows, ~sparse.blank(rows)), path)
    base = _base(rows, path, options.index_base)
    single = (np.diff(rows.label_indptr) == 1).all()
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices - np.int32(base), rows.values),
        features=int(rows.indices.max(initial=base - 1)) + 1 - base,
        labels=rows.labels if single else None,
        label_lists=None if single else sparse.label_lists(rows, path),
        source=str(path),
        index_base=base,
        lines=rows.lines,
    )


def _clean(block: Block) -> Block:
    text = COMMENT.sub(b"", block.text) if b"#" in block.text else block.text
    return Block(block.first_line, QUERY.sub(b"", text) if b"qid:" in text else text)


def _base(rows: SparseRows, path: Path, wanted: int | None) -> int:
    zeros = np.flatnonzero(rows.indices == 0)
    if wanted is None:
        return 0 if len(zeros) else 1
    if wanted == 1 and len(zeros):
        line = rows.lines[csr.row_of(rows.indptr, zeros[0])]
        raise DataError(
            f"{path}:{line}: feature index 0, but features count from 1 here (as given, or as in "
            "the training file); if they count from 0, give --index-base 0"
        )
    return wanted
