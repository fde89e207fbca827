"""svmlight/libsvm text: "label index:value ..." or "label,label index:value ...", one row a line.

Comments run from # to the end of the line, qid:N is ignored, blank lines are no rows, and a row
without labels starts with a blank or with its first index:value.

As soon as a row has not just one label, labels are lists of indices, in which no other numbers can
stand. Where a file has both, the kind of row that is rarer is a mistake.
"""

import numpy as np

from hogbatch.data import csr, sparse
from hogbatch.data.batch import csr_inputs
from hogbatch.data.raw import MAX_INDEX, Options, RawSet
from hogbatch.data.skipped import FIRST, NOTHING, Misplaced, Skipped
from hogbatch.data.source import Source
from hogbatch.data.sparse import Lines, SparseRows
from hogbatch.data.text import TextFile, lines_at
from hogbatch.errors import DataError


def read(path: Source, options: Options) -> RawSet:
    """Read a libsvm file. Features count from 0 if index 0 occurs, else from 1, unless told.

    With `options.declared` features, a larger index is a mistake.
    """
    file = TextFile(path, options)
    base = 1 if options.index_base is None else options.index_base
    limit = MAX_INDEX + 1 if options.declared is None else options.declared + base
    lines = Lines(libsvm=True, base=base, lowest=options.index_base or 0, features=limit)
    rows, facts, skipped = sparse.read_rows(file, file.first, lines)
    if not len(rows.lines):
        raise DataError(f"{path} is empty: expected rows like '+1 3:0.5 7:1'")
    odd = NOTHING
    if not facts.single and not sparse.whole(rows.labels).all():
        rows, odd = _agreeing(path, rows)
        facts = sparse.facts_of(rows, base)
    if facts.lowest < base:
        rows.indices[:] += 1
        base = 0
        if facts.highest == options.declared:  # which was in range while features counted from 1
            rows, beyond = _within(rows, options.declared)
            odd = Skipped.of_parts((odd, beyond))
            facts = sparse.facts_of(rows, base)
    skipped = Skipped.of_parts((skipped, odd))
    skipped.check(path, len(rows.lines), options.bad_lines)
    return RawSet(
        inputs=csr_inputs(rows.indptr, rows.indices, rows.values),
        features=options.declared or max(facts.highest + 1 - base, 0),
        labels=rows.labels if facts.single else None,
        label_lists=None if facts.single else sparse.label_lists(rows, facts),
        source=str(path),
        index_base=base,
        lines=rows.lines,
        skipped=skipped,
    )


def _within(rows: SparseRows, features: int) -> tuple[SparseRows, Skipped]:
    """Keep rows whose indices, counted from 0, are below `features`; the others are mistakes."""
    beyond = np.zeros(len(rows.lines), np.bool_)
    beyond[csr.rows_of(rows.indptr)[rows.indices >= features]] = True
    lines, mistake = rows.lines[beyond].tolist(), sparse.beyond(features, features, 0, None)
    return sparse.keep(rows, ~beyond), Skipped.of(lines, lambda line: mistake)


def _agreeing(path: Source, rows: SparseRows) -> tuple[SparseRows, Skipped]:
    """Keep rows whose labels go with those of most others, and say what is wrong with the rest."""
    indptr, whole = rows.label_indptr, sparse.whole(rows.labels)
    not_single, not_listed = np.diff(indptr) != 1, np.zeros(len(rows.lines), np.bool_)
    not_listed[csr.rows_of(indptr)[~whole]] = True
    single = not_single.sum() < not_listed.sum()
    odd = not_single if single else not_listed
    lines = rows.lines[odd].tolist()
    contents = dict(zip(lines, lines_at(path, lines[:FIRST]), strict=False))

    def mistake(line: int) -> Misplaced:
        row = np.searchsorted(rows.lines, line)
        begin, end = indptr[row], indptr[row + 1]
        which = 1 if single else int(np.argmin(whole[begin:end]))
        at = sparse.label_at(contents[line], which)
        if single:
            return Misplaced(
                at, f"expected one label, as in most rows; got {end - begin or 'none'}"
            )
        return sparse.not_listed(rows.labels[begin + which], at)

    return sparse.keep(rows, ~odd), Skipped.of(lines, mistake)
