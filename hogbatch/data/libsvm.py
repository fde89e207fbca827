"""svmlight/libsvm text: "label index:value ..." or "label,label index:value ...", one row per line.

Comments run from # to the end of the line, qid:N is ignored, blank lines are skipped, and a row
without labels starts with a blank or with its first index:value.

If any row has no or several labels, all labels are lists of indices, which cannot contain other
numbers. If a file mixes the two kinds of rows, rows of the rarer kind are malformed.
"""

import numpy as np

from hogbatch.data import csr, sparse, sparse_rows
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import MAX_INDEX, RawSet, ReadOptions
from hogbatch.data.skipped import MAX_REPORTED, NONE_SKIPPED, LineError, SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.sparse import SparseFormat
from hogbatch.data.sparse_rows import SparseRows
from hogbatch.data.text import TextFile, lines_at
from hogbatch.errors import DataError


def read(path: Source, options: ReadOptions) -> RawSet:
    """Read a libsvm file.

    Unless `options.index_base` is given, features are counted from 0 if index 0 occurs, else from
    1. With `options.declared` features, lines with a larger index are malformed.
    """
    file = TextFile(path, options)
    base = 1 if options.index_base is None else options.index_base
    limit = MAX_INDEX + 1 if options.declared is None else options.declared + base
    line_format = SparseFormat(
        libsvm=True, base=base, lowest=options.index_base or 0, features=limit
    )
    rows, summary, skipped = sparse.read_rows(file, file.first, line_format)
    if not len(rows.lines):
        raise DataError(f"{path} is empty: expected rows like '+1 3:0.5 7:1'")
    odd = NONE_SKIPPED
    if not summary.single and not sparse_rows.is_index(rows.labels).all():
        rows, odd = _keep_majority(path, rows)
        summary = sparse_rows.summary_of(rows, base)
    if summary.lowest < base:
        rows.indices[:] += 1
        base = 0
        if summary.highest == options.declared:  # in range only while features counted from 1
            rows, beyond = _drop_out_of_range(rows, options.declared)
            odd = SkippedLines.of_parts((odd, beyond))
            summary = sparse_rows.summary_of(rows, base)
    skipped = SkippedLines.of_parts((skipped, odd))
    skipped.check(path, len(rows.lines), options.bad_lines)
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=options.declared or max(summary.highest + 1 - base, 0),
        labels=rows.labels if summary.single else None,
        label_lists=None if summary.single else sparse_rows.label_lists(rows, summary),
        source=str(path),
        index_base=base,
        lines=rows.lines,
        skipped=skipped,
    )


def _drop_out_of_range(rows: SparseRows, features: int) -> tuple[SparseRows, SkippedLines]:
    """Keep rows whose indices, counted from 0, are below `features`; the others are malformed."""
    beyond = np.zeros(len(rows.lines), np.bool_)
    beyond[csr.rows_of(rows.indptr)[rows.indices >= features]] = True
    lines, error = rows.lines[beyond].tolist(), sparse.out_of_range(features, features, 0, None)
    return sparse_rows.keep(rows, ~beyond), SkippedLines.of(lines, lambda line: error)


def _keep_majority(path: Source, rows: SparseRows) -> tuple[SparseRows, SkippedLines]:
    """Keep rows with the more common kind of labels; the others are malformed."""
    indptr, valid = rows.label_indptr, sparse_rows.is_index(rows.labels)
    not_single, not_listed = np.diff(indptr) != 1, np.zeros(len(rows.lines), np.bool_)
    not_listed[csr.rows_of(indptr)[~valid]] = True
    single = not_single.sum() < not_listed.sum()
    odd = not_single if single else not_listed
    lines = rows.lines[odd].tolist()
    contents = dict(zip(lines, lines_at(path, lines[:MAX_REPORTED]), strict=False))

    def diagnose(line: int) -> LineError:
        row = np.searchsorted(rows.lines, line)
        begin, end = indptr[row], indptr[row + 1]
        number = 1 if single else int(np.argmin(valid[begin:end]))
        at = sparse.label_at(contents[line], number)
        if single:
            return LineError(
                at, f"expected one label, as in most rows; got {end - begin or 'none'}"
            )
        return sparse.not_listed(rows.labels[begin + number], at)

    return sparse_rows.keep(rows, ~odd), SkippedLines.of(lines, diagnose)
