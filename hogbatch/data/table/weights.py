"""The weights of the rows of a table, which are in one of its columns."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.columns import find
from hogbatch.data.table.columns import NumberColumn, Table
from hogbatch.data.table.typed import typed
from hogbatch.data.weights import used_rows
from hogbatch.errors import DataError
from hogbatch.machine.printable import digits, quoted


def weighted_rows(table: Table, name: str | None) -> tuple[Table, NDArray[np.float64] | None]:
    """The rows of weight above 0, and their weights from column `name`, which is left out.

    Without a name: all rows, and None. DataError for a cell that is not a number of at least 0.
    """
    if name is None:
        return table, None
    position = find(table.form, name, "weight")
    column, wrong = typed(table, position, "number")
    if wrong is not None:
        raise DataError(f"{table.locate(int(wrong.rows[0]))}: {wrong.complaint}, the row's weight")
    assert isinstance(column, NumberColumn)
    weights = column.values.astype(np.float64)
    expected = f"column {quoted(name)}: expected a weight"
    for row in np.flatnonzero(~(weights >= 0))[:1].tolist():
        got = "a missing value" if np.isnan(weights[row]) else digits(weights[row])
        raise DataError(f"{table.locate(row)}: {expected} of at least 0; got {got}")
    if not weights.any():
        raise DataError(f"{table.source}: {expected} above 0; got only zeros")
    columns = {n: each for n, each in table.columns.items() if n != position}
    kept, own = used_rows(weights, len(weights))
    table = replace(table, columns=columns)
    return (table if kept is None else table.of_rows(kept)), own
