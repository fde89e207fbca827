"""The groups of the rows of a table, which are the values of one of its columns."""

import numpy as np

from hogbatch.data.columns import find
from hogbatch.data.order import Groups
from hogbatch.data.table.columns import DateColumn, NumberColumn, Table, to_categories
from hogbatch.data.table.typed import typed
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.printable import quoted


def grouped_rows(table: Table, group: str | None, time: str | None) -> Groups | None:
    """The groups of the rows: the values of column `group`, or of `time` in ascending order.

    Without names: None. UsageError for two names. DataError for missing values, times that are
    neither numbers nor dates.
    """
    if group is not None and time is not None:
        raise UsageError(
            "--group and --time split the rows in different ways; expected one of them"
        )
    name, use = (group, "group") if time is None else (time, "time")
    if name is None:
        return None
    column, wrong = typed(table, find(table.form, name, use), "category" if time is None else None)
    if wrong is not None:
        raise DataError(f"{table.locate(int(wrong.rows[0]))}: {wrong.complaint}, the row's {use}")
    expected = f"column {quoted(name)}: expected a {use} in each row"
    for row in np.flatnonzero(column.missing)[:1].tolist():
        raise DataError(f"{table.locate(row)}: {expected}; got a missing value")
    if isinstance(column, NumberColumn | DateColumn):
        cells = column.values if isinstance(column, NumberColumn) else column.seconds
        numbers = np.unique(cells, return_inverse=True)[1]
    else:
        texts = to_categories(column)
        if time is not None:
            got = quoted(texts.values[texts.codes[0]])
            raise DataError(f"{table.locate(0)}: {expected}, a number or date; got {got}")
        numbers = np.unique(np.array(texts.values), return_inverse=True)[1][texts.codes]
    return Groups(numbers, f"{table.source}: column {quoted(name)}", ordered=time is not None)
