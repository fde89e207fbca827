"""Parquet, Arrow and Feather files of numbers, for models that were trained on other files."""

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import double_inputs
from hogbatch.data.columns import TableForm, map_columns, numbered
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.source import Source
from hogbatch.data.table.columns import NumberColumn, Table
from hogbatch.data.table.kinds import Kind, typed
from hogbatch.data.table.read import open_table, read_columns
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted


class NotNumbers(DataError):
    """A column has text, dates or missing values."""


def read(source: Source, options: ReadOptions) -> RawSet:
    """Read the columns of a model that was trained on a CSV file of numbers, and of its label.

    They are matched as those of CSV files are, see `map_columns`. DataError for a cell that is not
    a number.
    """
    file = open_table(source, options)
    names = file.names if file.named else ()
    form = TableForm(source, "", len(file.names), names, None, numbered(names))
    mapping = map_columns(form, options)
    label = [] if mapping.label is None else [mapping.label]
    kinds: dict[int, Kind | None] = {column: None for column in (*mapping.sources, *label)}
    table, skipped = read_columns(file, kinds, options)
    cells = {column: _numbers(table, column) for column in kinds}
    dense = np.empty((table.rows, len(mapping.sources)))
    for feature, column in enumerate(mapping.sources):
        dense[:, feature] = cells[column]
    return RawSet(
        inputs=double_inputs(dense),
        features=dense.shape[1],
        labels=None if mapping.label is None else cells[mapping.label],
        label_lists=None,
        source=str(source),
        skipped=skipped,
        columns=mapping.columns(form),
        notes=mapping.notes,
    )


def _numbers(table: Table, position: int) -> NDArray[np.float64]:
    """The cells of a column; DataError for the first that is missing or not a number."""
    column, unexpected = typed(table, position, "number")
    name = quoted(table.names[position])
    if not isinstance(column, NumberColumn):
        raise NotNumbers(f"{table.source}: column {name}: expected numbers; got dates or text")
    if unexpected is not None:
        raise NotNumbers(f"{table.locate(int(unexpected.rows[0]))}: {unexpected.complaint}")
    missing = np.flatnonzero(np.isnan(column.values))
    if len(missing):
        location = table.locate(int(missing[0]))
        raise NotNumbers(f"{location}: column {name}: expected a number; got a missing value")
    return column.values
