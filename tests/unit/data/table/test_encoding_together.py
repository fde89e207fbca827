"""Plain columns of numbers, which are encoded together: as one after the other, and in matrices."""

import numpy as np
import pytest

from hogbatch.data.table.columns import NumberColumn, Table
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.given import encode
from hogbatch.data.table.kinds import TableOptions, inspect
from hogbatch.data.table.numeric import PlainNumbers
from hogbatch.errors import DataError, UsageError

ROWS, WIDTH = 60, 5


def cells():
    """Numbers of several sizes, some missing, and a column of two numbers."""
    random = np.random.default_rng(0)
    found = random.normal(size=(ROWS, WIDTH)) * [1, 1e6, 1e-3, 1, 1] + [0, 1e9, 0, 5, 0]
    found[::7, 1] = found[3::11, 3] = np.nan
    found[:, 4] = found[:, 4] > 0
    return found


def fitted(numbers, scaling):
    """An encoding whose label is column 2 of the table."""
    columns = {n: NumberColumn(column) for n, column in enumerate(numbers.T)}
    columns = {**columns, WIDTH: columns[2], 2: NumberColumn(np.arange(ROWS) % 2.0)}
    table = Table("t", tuple("abcdef"), columns)
    return TableEncoding.fit(inspect(table, TableOptions(), (2,)), None, scaling)


@pytest.mark.parametrize("scaling", ["robust", "standard", "max", "none"])
def test_columns_together_have_the_values_of_each_alone(scaling):
    """Found: a missing value with the fill of another column, or an indicator beside its place."""
    numbers, rows = cells(), np.arange(ROWS)
    encoding = fitted(numbers, scaling)
    order = [0, 1, 3, 4, 2]  # the columns without the label, which is in place 2
    expected = np.zeros((ROWS, encoding.features), np.float32)
    for place, (own, features) in zip(order, encoding.features_by_column(), strict=True):
        block = own.encoder.encode(NumberColumn(numbers[:, place]), rows)
        at = np.broadcast_to(block.features, block.values.shape).astype(np.int64)
        np.put_along_axis(expected[:, features], at, block.values, axis=1)
    found = encode({n: numbers[:, c] for n, c in zip("abdef", order, strict=True)}, encoding, "X")
    np.testing.assert_array_equal(found.dense, expected, strict=True)
    for part in (slice(0, ROWS), slice(3, 4), slice(0, 0)):
        matrix = encode(numbers[part][:, order], encoding, "X")
        np.testing.assert_array_equal(matrix.dense, expected[part], strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_a_matrix_of_any_type_has_the_values_of_its_columns(dtype):
    matrix, encoding = np.eye(4, WIDTH, dtype=dtype), fitted(cells(), "standard")
    columns = {name: matrix[:, n] for n, name in enumerate("abdef")}
    expected = encode(columns, encoding, "X").dense
    np.testing.assert_array_equal(encode(matrix, encoding, "X").dense, expected)


def test_a_matrix_is_refused_like_its_columns():
    encoding, matrix = fitted(cells(), "standard"), np.zeros((3, WIDTH))
    with pytest.raises(UsageError, match="X: expected 5 features, as in the training data; got 4"):
        encode(matrix[:, :4], encoding, "X")
    matrix[2, 3] = 1e39
    with pytest.raises(DataError, match=r"X: row 2: column '3': expected a finite number within"):
        encode(matrix, encoding, "X")


def test_the_cells_of_a_matrix_are_not_changed():
    numbers = cells()
    before = numbers.copy()
    encode(numbers, fitted(numbers, "robust"), "X")
    np.testing.assert_array_equal(numbers, before)


def test_no_columns_can_be_encoded_together():
    assert PlainNumbers.of([]).encode(np.empty((2, 0))).values.shape == (2, 0)
