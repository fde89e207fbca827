import numpy as np
from numpy.testing import assert_allclose
from sklearn.preprocessing import StandardScaler

from hogbatch.data import standardize
from hogbatch.data.batch import dense_inputs
from hogbatch.data.csr import to_csr, to_dense
from hogbatch.data.standardize import fit

RANDOM = np.random.default_rng(4)
DENSE = (RANDOM.normal(50, 3, (300, 5)) * [1, 1e-6, 1e6, 0, 1]).astype(np.float32)
DENSE[:, 4] = 0.7  # constant


def test_dense_columns_get_mean_zero_and_deviation_one(monkeypatch):
    monkeypatch.setattr(standardize, "BLOCK_ROWS", 64)
    standardizer = fit(dense_inputs(DENSE), 5)
    out = standardizer.apply(dense_inputs(DENSE)).dense
    expected = StandardScaler().fit_transform(DENSE.astype(np.float64))
    assert out.dtype == np.float32
    assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    assert_allclose(out[:, :3].std(axis=0), 1, rtol=1e-5)


def test_a_constant_column_keeps_its_scale():
    standardizer = fit(dense_inputs(DENSE), 5)
    assert standardizer.scale[3:].tolist() == [1, 1]
    assert_allclose(standardizer.apply(dense_inputs(DENSE)).dense[:, 3:], 0, atol=1e-6)


def test_sparse_columns_are_scaled_and_stay_sparse():
    dense = np.where(RANDOM.random(DENSE.shape) < 0.4, DENSE, 0).astype(np.float32)
    dense[:, 4] = 0.7
    standardizer = fit(to_csr(dense_inputs(dense)), 5)
    out = standardizer.apply(to_csr(dense_inputs(dense)))
    expected = StandardScaler(with_mean=False).fit_transform(dense.astype(np.float64))
    assert len(out.dense) == 0
    assert standardizer.mean.tolist() == [0] * 5
    assert standardizer.scale[3:].tolist() == [1, 1]
    assert_allclose(to_dense(out, 5).dense, expected, rtol=1e-5)


def test_sparse_rows_are_centred_when_the_mean_comes_from_dense_ones():
    standardizer = fit(dense_inputs(DENSE), 5)
    rows = dense_inputs(np.where(DENSE > 40, DENSE, 0)[:7])
    sparse = standardizer.apply(to_csr(rows))
    np.testing.assert_array_equal(sparse.dense, standardizer.apply(rows).dense, strict=True)


def test_the_rows_given_are_not_changed():
    before = DENSE.copy()
    fit(dense_inputs(DENSE), 5).apply(dense_inputs(DENSE))
    np.testing.assert_array_equal(DENSE, before)


def test_a_huge_test_value_overflows_without_a_warning():
    tiny = dense_inputs(np.array([[1e-30], [3e-30]], np.float32))
    huge = dense_inputs(np.array([[1e38]], np.float32))
    assert fit(tiny, 1).apply(huge).dense[0, 0] == np.inf
    assert fit(to_csr(tiny), 1).apply(to_csr(huge)).values[0] == np.inf
