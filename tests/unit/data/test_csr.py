from itertools import chain

import numpy as np
from hypothesis import given, strategies as st

from hogbatch.data import csr
from hogbatch.data.batch import dense_inputs
from tests.support.property_tests import max_examples

lists = st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=6)


@max_examples(60)
@given(lists, st.data())
def test_order_within_rows_owners_and_positions(rows, data):
    indptr, indices = np.cumsum([0, *map(len, rows)]), np.array([*chain(*rows)], np.int32)
    order = csr.ascending_order(indptr, indices)
    sorted_rows = [sorted(row) for row in rows]
    assert (order is None) == (rows == sorted_rows)
    ordered = indices if order is None else indices[order]
    assert ordered.tolist() == [*chain(*sorted_rows)]
    firsts = [i == 0 or row[i] != row[i - 1] for row in sorted_rows for i in range(len(row))]
    assert (~csr.repeats(indptr, ordered)).tolist() == firsts
    owners = [row for row, members in enumerate(rows) for _ in members]
    assert csr.rows_of(indptr).tolist() == owners
    assert [csr.row_of(indptr, n) for n in range(len(indices))] == owners
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    taken, positions = csr.positions(indptr, np.array(chosen, np.int64))
    assert indices[positions].tolist() == [member for row in chosen for member in rows[row]]
    assert np.diff(taken).tolist() == [len(rows[row]) for row in chosen]


def test_dense_to_csr_and_back():
    dense = np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3]], np.float32)
    sparse = csr.to_csr(dense_inputs(dense))
    assert sparse.indptr.tolist() == [0, 1, 1, 3] and sparse.indices.dtype == np.int32
    np.testing.assert_array_equal(csr.to_dense(sparse, 3).dense, dense, strict=True)
