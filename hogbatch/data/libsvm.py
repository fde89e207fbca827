"""svmlight/libsvm text: "label index:value ..." or "label,label index:value ...", one row a line.

Comments run from # to the end of the line, qid:N is ignored, blank lines are no rows, and a row
without labels starts with a blank or with its first index:value.
"""

from pathlib import Path

import numpy as np

from hogbatch.data import csr, sparse
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import Options, RawSet
from hogbatch.data.sparse import Facts, Lines, SparseRows
from hogbatch.data.text import TextFile
from hogbatch.errors import DataError


def read(path: Path, options: Options) -> RawSet:
    """Read a libsvm file. Features count from 0 if index 0 occurs, else from 1, unless told."""
    file = TextFile(path)
    lines = Lines(path, libsvm=True, base=1 if options.index_base is None else options.index_base)
    rows, facts = sparse.read_rows(file, file.first, lines, options.threads)
    if not len(rows.lines):
        raise DataError(f"{path} is empty: expected rows like '+1 3:0.5 7:1'")
    base = _base(rows, facts, lines, options.index_base)
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=max(facts.highest + 1 - base, 0),
        labels=rows.labels if facts.single else None,
        label_lists=None if facts.single else sparse.label_lists(rows, facts, lines),
        source=str(path),
        index_base=base,
        lines=rows.lines,
    )


def _base(rows: SparseRows, facts: Facts, lines: Lines, wanted: int | None) -> int:
    """Decide what indices count from; they are changed in place if 1 turns out to be wrong."""
    if lines.base == 0 or facts.lowest > 0:
        return lines.base
    if wanted is None:
        rows.indices[:] += 1
        return 0
    first = np.flatnonzero(rows.indices < 0)[0]
    line = rows.lines[csr.row_of(rows.indptr, first)]
    raise DataError(
        f"{lines.place(line, 0)}: feature index 0, but features count from 1 here (as given, or as "
        "in the training file); if they count from 0, give --index-base 0"
    )
