"""The rows of a set that have a label; nothing can be learned from the others."""

from dataclasses import replace

import numpy as np

from hogbatch.data import csr
from hogbatch.data.raw import RawSet, unlabelled
from hogbatch.errors import DataError
from hogbatch.machine.printable import plural


def labelled(raw: RawSet) -> RawSet:
    """Leave out the rows without a label, with a note. DataError if no row has one."""
    if raw.labels is None or not (missing := unlabelled(raw.labels)).any():
        return raw
    rows = np.flatnonzero(~missing)
    if not len(rows):
        raise DataError(f"{raw.source}: expected labels; got none in any row")
    left_out = plural(raw.rows - len(rows), "row")
    table = raw.table
    if table is not None:
        table = table._replace(table=replace(table.table, kept=table.table.numbers(rows)))
    return replace(
        raw,
        inputs=csr.rows(raw.inputs, rows),
        labels=raw.labels[rows],
        lines=None if raw.lines is None else raw.lines[rows],
        weights=None if raw.weights is None else raw.weights[rows],
        groups=None if raw.groups is None else raw.groups.of_rows(rows),
        notes=(*raw.notes, f"left out: {left_out} without a label"),
        table=table,
        locator=lambda row: raw.locate(int(rows[row])),
    )
