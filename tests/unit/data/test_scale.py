from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from hogbatch.data import scale
from hogbatch.data.batch import csr_inputs, dense_inputs, double_inputs
from hogbatch.data.csr import to_csr, to_dense
from hogbatch.data.scale import ColumnMoments, fit, scaled
from hogbatch.errors import UsageError

RANDOM = np.random.default_rng(4)
DENSE = (RANDOM.normal(50, 3, (300, 5)) * [1, 1e-6, 1e6, 0, 1]).astype(np.float32)
DENSE[:, 4] = 0.7  # constant
NORMAL = RANDOM.normal(0, 1, 300)


def chosen(setting, inputs, features=5, rows=None):
    return fit(setting, inputs, features, rows)[0]


def column(values):
    return double_inputs(np.array(values, np.float64).reshape(-1, 1))


def sparse_column(values):
    indptr, indices = np.arange(len(values) + 1), np.zeros(len(values), np.int32)
    return csr_inputs(indptr, indices, np.array(values, np.float32))


def test_dense_columns_get_mean_zero_and_deviation_one(monkeypatch):
    monkeypatch.setattr(scale, "BLOCK_VALUES", 64 * 5)
    scaler = chosen("standard", dense_inputs(DENSE))
    out = scaler.apply(dense_inputs(DENSE)).dense
    expected = StandardScaler().fit_transform(DENSE.astype(np.float64))
    assert out.dtype == np.float32
    assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    assert_allclose(out[:, :3].std(axis=0), 1, rtol=1e-5)


def test_seconds_since_1970_keep_their_differences():
    seconds = 1_700_000_000 + np.arange(100.0) / 4
    scaler = chosen("standard", column(seconds), 1)
    out = scaler.apply(column(seconds)).dense[:, 0]
    assert_allclose(out, (np.arange(100) - 49.5) / np.arange(100).std(), rtol=1e-5)


@pytest.mark.parametrize("setting", ["standard", "max"])
def test_only_the_rows_to_train_on_decide(setting, monkeypatch):
    monkeypatch.setattr(scale, "BLOCK_VALUES", 10)
    inputs, rows = double_inputs(DENSE.astype(np.float64)), np.array([7, 3, 250, 4, 8])
    part = double_inputs(inputs.dense[rows])
    scaler, alone = chosen(setting, inputs, rows=rows), chosen(setting, part)
    assert_array_equal(scaler.mean, alone.mean)
    assert_array_equal(scaler.scale, alone.scale)
    assert_array_equal(scaler.apply(inputs, rows).dense, alone.apply(part).dense)
    sparse = to_csr(inputs)
    other = chosen(setting, sparse, rows=rows)
    assert_allclose(other.scale, chosen(setting, to_csr(part)).scale)
    assert_allclose(to_dense(other.apply(sparse, rows), 5).dense, part.dense / other.scale, 1e-6)


@pytest.mark.parametrize("value", [0.7, 1e9 + 0.1])
def test_a_column_that_never_changes_becomes_zero(value):
    rows = np.full(1001, value)
    rows[1] = np.nextafter(value, 2 * value)  # the same but for rounding
    scaler = chosen("standard", column(rows), 1)
    assert scaler.scale.tolist() == [1]
    assert_allclose(scaler.apply(column(rows)).dense, 0, atol=1e-6)
    assert chosen("standard", column(np.zeros(5)), 1).scale.tolist() == [1]
    assert chosen("max", column(np.zeros(5)), 1).scale.tolist() == [1]


def test_sparse_columns_are_scaled_and_stay_sparse():
    dense = np.where(RANDOM.random(DENSE.shape) < 0.4, DENSE, 0).astype(np.float32)
    dense[:, 4] = 0.7
    scaler = chosen("standard", to_csr(dense_inputs(dense)))
    out = scaler.apply(to_csr(dense_inputs(dense)))
    expected = StandardScaler(with_mean=False).fit_transform(dense.astype(np.float64))
    assert len(out.dense) == 0
    assert scaler.mean.tolist() == [0] * 5
    assert scaler.scale[3:].tolist() == [1, 1]
    assert_allclose(to_dense(out, 5).dense, expected, rtol=1e-5)


def test_the_largest_value_of_each_column_becomes_one():
    signed = DENSE * np.where(RANDOM.random(DENSE.shape) < 0.5, 1, -1)
    expected = MaxAbsScaler().fit_transform(signed.astype(np.float64))
    for form in (to_csr(dense_inputs(signed)), dense_inputs(signed)):
        out = chosen("max", form).apply(form)
        assert_allclose(to_dense(out, 5).dense if out.indptr.size else out.dense, expected, 1e-6)


def test_sparse_rows_are_centred_when_the_mean_comes_from_dense_ones():
    scaler = chosen("standard", dense_inputs(DENSE))
    rows = dense_inputs(np.where(DENSE > 40, DENSE, 0)[:7])
    sparse = scaler.apply(to_csr(rows))
    assert_array_equal(sparse.dense, scaler.apply(rows).dense, strict=True)


def test_the_rows_given_are_not_changed():
    before = DENSE.copy()
    chosen("standard", dense_inputs(DENSE)).apply(dense_inputs(DENSE))
    assert_array_equal(DENSE, before)


def test_a_huge_test_value_overflows_without_a_warning():
    tiny = dense_inputs(np.array([[1e-30], [3e-30]], np.float32))
    huge = dense_inputs(np.array([[1e38]], np.float32))
    assert chosen("standard", tiny, 1).apply(huge).dense[0, 0] == np.inf
    assert chosen("standard", to_csr(tiny), 1).apply(to_csr(huge)).values[0] == np.inf


def test_without_a_scaler_rows_become_float32_and_float32_is_not_copied():
    rows = np.array([2, 0])
    assert scaled(dense_inputs(DENSE), None).dense is DENSE
    assert_array_equal(scaled(dense_inputs(DENSE), None, rows).dense, DENSE[rows], strict=True)
    double = double_inputs(DENSE.astype(np.float64))
    assert_array_equal(scaled(double, None).dense, DENSE, strict=True)
    assert_array_equal(scaled(double, None, rows).dense, DENSE[rows], strict=True)
    sparse = to_csr(dense_inputs(DENSE))
    assert scaled(sparse, None).values is sparse.values
    assert_array_equal(to_dense(scaled(sparse, None, rows), 5).dense, DENSE[rows])


def test_what_is_done_is_said():
    dense, sparse = dense_inputs(DENSE), to_csr(dense_inputs(DENSE))
    off = " (--scale none turns this off)"
    assert fit("auto", dense, 5)[1] == f"dense features scaled to mean 0, deviation 1{off}"
    assert fit("auto", sparse, 5)[1] == f"sparse features divided by their largest |value|{off}"
    assert fit("standard", sparse, 5)[1] == f"sparse features scaled to deviation 1{off}"
    assert fit("max", dense, 5)[1] == f"dense features divided by their largest |value|{off}"
    assert fit("none", dense, 5) == (None, None)
    with pytest.raises(
        UsageError, match="scale must be one of auto, none, standard, max, quantile; got 'x'"
    ):
        fit("x", dense, 5)


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 1],
        [0] * 999 + [1],
        [0.25, 0.5],  # spans half of its largest
        [-1, 1],
        [0, 0.01],
        [1, 1],  # constant
        [0, 0],
        NORMAL,
        NORMAL * 0.6 + 0.4,
        NORMAL * 1.9 - 0.3,
        [*NORMAL, 20.0],
    ],
)
def test_dense_columns_in_scale_are_left_alone(values):
    assert fit("auto", column(values), 1) == (None, None)
    both = np.stack([np.resize(values, 1000), np.arange(1000.0)], axis=1)
    scaler, _ = fit("auto", double_inputs(both), 2)
    assert scaler is not None, "one column out of scale and all are scaled"


@pytest.mark.parametrize(
    "values",
    [
        [0, 1.01],
        [0.26, 0.5],  # far from 0 for its span
        [0.9, 0.95, 1],
        [-0.9, -1],
        [0, 0.0099],
        [2, 2],  # constant, but large
        NORMAL * 0.4 + 2,
        NORMAL * 2.5,
        NORMAL + 1,
        [17, 90],
    ],
)
def test_dense_columns_out_of_scale_are_standardised(values):
    scaler, _ = fit("auto", column(values), 1)
    out = scaler.apply(column(values)).dense
    assert_allclose(out.mean(), 0, atol=1e-6)
    assert_allclose(out.std(), 0 if np.std(values) == 0 else 1, rtol=1e-5)


@pytest.mark.parametrize("values", [[1, 1], [0.001, 0.0001], [-10, 1], [0, 0]])
def test_sparse_features_in_scale_are_left_alone(values):
    assert fit("auto", sparse_column(values), 2) == (None, None)


@pytest.mark.parametrize("values", [[0.0009], [1, -10.01], [1e9, 1]])
def test_sparse_features_out_of_scale_are_divided_by_their_largest(values):
    scaler, _ = fit("auto", sparse_column(values), 2)
    assert_allclose(np.abs(scaler.apply(sparse_column(values)).values).max(), 1, rtol=1e-6)
    assert scaler.scale[1] == 1  # a feature that does not occur


@pytest.mark.parametrize("form", [dense_inputs, lambda dense: to_csr(dense_inputs(dense))])
def test_moments_of_parts_merge_to_those_of_all_rows(form):
    rows = np.where(RANDOM.random(DENSE.shape) < 0.5, 0, DENSE)
    cuts = [0, 1, 100, 101, 300]
    parts = [ColumnMoments.of(form(rows[a:b]), 5) for a, b in pairwise(cuts)]
    merged, whole = reduce(ColumnMoments.merged, parts), ColumnMoments.of(form(rows), 5)
    assert merged.rows == 300
    for found, expected in zip(merged, whole, strict=True):
        assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    numbers = rows.astype(np.float64)
    assert_allclose(merged.squares, numbers.var(axis=0) * 300, rtol=1e-6)
    assert_allclose(merged.statistics.deviation, numbers.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("setting", ["standard", "max", "none"])
@pytest.mark.parametrize("form", [dense_inputs, lambda dense: to_csr(dense_inputs(dense))])
def test_the_mean_square_of_scaled_rows_follows_from_moments(form, setting):
    inputs = form(np.where(RANDOM.random(DENSE.shape) < 0.5, 0, DENSE))
    scaler = chosen(setting, inputs)
    out = scaled(inputs, scaler)
    stored = (out.values if len(out.indptr) else out.dense).astype(np.float64)
    found = ColumnMoments.of(inputs, 5).mean_square(scaler)
    assert found == pytest.approx(np.square(stored).sum() / 300, rel=1e-6)
