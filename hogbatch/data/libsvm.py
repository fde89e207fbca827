"""svmlight/libsvm text: "label index:value ..." or "label,label index:value ...", one row per line.

Comments run from # to the end of the line, qid:N is ignored, blank lines are skipped, and a row
without labels starts with a blank or with its first index:value.

If some rows have several labels, or none has one, all labels are lists of indices, which cannot
contain other numbers. If less than FEW of the rows have several labels, those without exactly one
are malformed instead, unless `ReadOptions.lists`. If lists and other numbers are mixed, rows of the
rarer kind are malformed.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr, sparse, sparse_rows
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import (
    MAX_INDEX,
    MAX_WHOLE,
    LabelNames,
    RawSet,
    ReadOptions,
    are_exact,
    named_labels,
)
from hogbatch.data.skipped import MAX_REPORTED, NONE_SKIPPED, LineError, SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.sparse import SparseFormat
from hogbatch.data.sparse_rows import SparseRows
from hogbatch.data.text import TextFile, lines_at
from hogbatch.errors import DataError

FEW: Final = 0.05  # labels are lists if at least this fraction of the rows has several


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
    if options.labels and not summary.single:
        rows, odd = _drop_odd_labels(path, rows, lists=options.lists)
        summary = sparse_rows.summary_of(rows, base)
    if summary.lowest < base:
        rows.indices[:] += 1
        base = 0
        if summary.highest == options.declared:  # in range only while features counted from 1
            beyond = np.zeros(len(rows.lines), np.bool_)
            beyond[csr.rows_of(rows.indptr)[rows.indices >= options.declared]] = True
            error = sparse.out_of_range(options.declared, options.declared, 0, None)
            dropped = SkippedLines.of(rows.lines[beyond].tolist(), lambda line: error)
            rows, odd = sparse_rows.keep(rows, ~beyond), SkippedLines.of_parts((odd, dropped))
            summary = sparse_rows.summary_of(rows, base)
    skipped = SkippedLines.of_parts((skipped, odd))
    skipped.check(path, len(rows.lines), options.bad_lines)
    labels, names = _single_labels(path, rows) if options.labels and summary.single else (None, ())
    lists = options.labels and not summary.single
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=options.declared or max(summary.highest + 1 - base, 0),
        labels=labels,
        label_names=names,
        label_lists=sparse_rows.label_lists(rows, summary) if lists else None,
        source=str(path),
        index_base=base,
        lines=rows.lines,
        skipped=skipped,
    )


def _single_labels(path: Source, rows: SparseRows) -> tuple[NDArray[Any], LabelNames]:
    """The labels of rows with one each; text, if one is a whole number that float64 cannot hold."""
    labels = rows.labels
    if (labels != np.floor(labels)).any():
        return labels, ()
    if are_exact(labels):
        return labels.astype(np.int64), ()
    lines = lines_at(path, rows.lines.tolist())
    texts = [sparse.labels_in(line)[0].text.lstrip("+") for line in lines]
    if any(text.lstrip("-").isdigit() and abs(int(text)) >= MAX_WHOLE for text in texts):
        return named_labels(np.array(texts))
    return labels, ()


def _drop_odd_labels(
    path: Source, rows: SparseRows, *, lists: bool
) -> tuple[SparseRows, SkippedLines]:
    """Keep rows with the kind of labels of the file; the others are malformed."""
    indptr, valid = rows.label_indptr, sparse_rows.is_index(rows.labels)
    counts, not_listed = np.diff(indptr), np.zeros(len(rows.lines), np.bool_)
    not_listed[csr.rows_of(indptr)[~valid]] = True
    not_single = counts != 1
    few_lists = not_single.mean() < 0.5 and (counts > 1).mean() < FEW
    single = not lists and bool(few_lists or not_single.sum() < not_listed.sum())
    odd = not_single if single else not_listed
    if not odd.any():
        return rows, NONE_SKIPPED
    lines = rows.lines[odd].tolist()
    contents = dict(zip(lines, lines_at(path, lines[:MAX_REPORTED]), strict=False))

    def diagnose(line: int) -> LineError:
        row = np.searchsorted(rows.lines, line)
        begin, end = indptr[row], indptr[row + 1]
        number = 1 if single else int(np.argmin(valid[begin:end]))
        written = sparse.labels_in(contents[line])[number:]
        at = written[0].at if written else 0
        if single:
            got = f"expected one label, as in most rows; got {end - begin or 'none'}"
            return LineError(at, f"{got} (--loss multilabel: labels are lists)")
        return sparse.not_listed(rows.labels[begin + number], at)

    return sparse_rows.keep(rows, ~odd), SkippedLines.of(lines, diagnose)
