import numpy as np
import pytest

from hogbatch.data.table import encoding
from hogbatch.data.table.columns import (
    FIRST_ROWS,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Table,
    varies,
)
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import TableOptions, inspect

ROWS = 50


def test_a_row_does_not_depend_on_the_other_rows_of_its_block(monkeypatch):
    random = np.random.default_rng(0)
    cells = random.normal(size=(2, ROWS))
    cells[1, ::7] = np.nan
    columns = {
        0: NumberColumn(cells[0]),
        1: NumberColumn(cells[1]),
        2: CategoryColumn.of_cells(random.choice(["a", "b"], ROWS)),
        3: DateColumn(random.uniform(0, 1e9, ROWS)),
        4: NumberColumn(cells[0] > 0),
    }
    table = Table("t", ("n", "m", "c", "d", "label"), columns)
    fitted = TableEncoding.fit(inspect(table, TableOptions(), (4,)), None, "standard")
    table, rows = fitted.select(table), random.integers(0, ROWS, 2 * ROWS)
    expected = fitted.transform(table).dense[rows]
    monkeypatch.setattr(encoding, "BLOCK_ROWS", 1)
    monkeypatch.setattr(encoding, "BLOCK_VALUES", 1)
    np.testing.assert_array_equal(fitted.transform(table, rows).dense, expected)


@pytest.mark.parametrize("last", [0.0, 1.0, np.nan])
def test_a_column_varies_if_one_row_differs(last):
    column = NumberColumn(np.append(np.zeros(FIRST_ROWS), last))
    assert varies(column, np.arange(len(column))) == (last != 0)


@pytest.mark.parametrize(("columns", "features"), [(8, 8 * 65), (9, None)])
def test_values_of_numbers_neither_make_rows_sparse_nor_are_too_many(columns, features):
    """Found: dense rows of numbers became sparse ones, for which other defaults are used."""
    cells = np.arange(13_000) % 64 * 1.0
    names = tuple("abcdefghij"[: columns + 1])
    table = Table("t", names, {n: NumberColumn(cells) for n in range(columns + 1)})
    plain = TableEncoding.fit(inspect(table, TableOptions(), (columns,)), None, "standard")
    found = plain.with_values(table, None)
    assert (found and (found.features, found.sparse)) == (features and (features, False))
