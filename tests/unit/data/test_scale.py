from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from hogbatch.data import scale
from hogbatch.data.batch import DoubleInputs, csr_inputs, dense_inputs
from hogbatch.data.csr import to_csr, to_dense
from hogbatch.data.raw import MAX_INDEX
from hogbatch.data.scale import ColumnMoments, fit, scaled
from hogbatch.errors import UsageError
from tests.support.pairs import pairs

RANDOM = np.random.default_rng(4)
DENSE = (RANDOM.normal(50, 3, (300, 5)) * [1, 1e-6, 1e6, 0, 1]).astype(np.float32)
DENSE[:, 4] = 0.7  # constant
HOLES = np.where(RANDOM.random(DENSE.shape) < 0.6, 0, DENSE)
HOLES[:, 4] = 0.7
NORMAL = RANDOM.normal(0, 1, 300)


def sparse_inputs(dense):
    return to_csr(dense_inputs(dense))


FORMS = {"dense": dense_inputs, "sparse": sparse_inputs}


def fitted(setting, inputs, features=5, rows=None):
    return fit(setting, inputs, features, rows)[0]


def matrix(inputs):
    return to_dense(inputs, 5).dense if len(inputs.indptr) else inputs.dense


def column(values):
    return DoubleInputs(np.array(values, np.float64).reshape(-1, 1))


@pytest.mark.parametrize(
    ("setting", "form", "theirs"),
    [
        ("standard", "dense", StandardScaler()),
        ("standard", "sparse", StandardScaler(with_mean=False)),
        ("max", "dense", MaxAbsScaler()),
        ("max", "sparse", MaxAbsScaler()),
    ],
)
def test_rows_are_scaled_as_scikit_learn_scales_them(monkeypatch, setting, form, theirs):
    monkeypatch.setattr(scale, "BLOCK_VALUES", 64 * 5)
    rows, before = -HOLES, -HOLES
    inputs = FORMS[form](rows)
    scaler = fitted(setting, inputs)
    out = scaled(inputs, scaler)
    assert len(out.indptr) == len(inputs.indptr)
    expected = theirs.fit_transform(rows.astype(np.float64))
    expected[:, 4] = 0  # constant
    assert_allclose(matrix(out), expected, rtol=1e-4, atol=1e-5)
    assert matrix(out).dtype == np.float32
    assert_array_equal(rows, before)


@pytest.mark.parametrize("setting", ["standard", "max"])
@pytest.mark.parametrize("form", FORMS)
def test_only_the_rows_to_train_on_decide(setting, form, monkeypatch):
    monkeypatch.setattr(scale, "BLOCK_VALUES", 10)
    rows = np.array([7, 3, 250, 4, 8])
    inputs, part = FORMS[form](HOLES), FORMS[form](HOLES[rows])
    scaler, alone = fitted(setting, inputs, rows=rows), fitted(setting, part)
    assert_array_equal(scaler.mean, alone.mean)
    assert_array_equal(scaler.scale, alone.scale)
    assert_array_equal(matrix(scaled(inputs, scaler, rows)), matrix(scaled(part, alone)))


@pytest.mark.parametrize("value", [0.7, 1e9 + 0.1, 0])
def test_a_column_that_never_changes_becomes_zero(value):
    rows = np.full(1001, value)
    rows[1] = np.nextafter(value, 2 * value)  # the same but for rounding
    scaler = fitted("standard", column(rows), 1)
    assert not scaled(column([value, value + 100]), scaler).dense.any()
    assert fit("standard", column(rows), 1, drop_constant=False)[0].scale.tolist() == [1]


def test_sparse_rows_are_centred_when_the_mean_comes_from_dense_ones():
    scaler = fitted("standard", dense_inputs(DENSE))
    sparse = scaled(sparse_inputs(HOLES[:7]), scaler)
    assert_array_equal(sparse.dense, scaled(dense_inputs(HOLES[:7]), scaler).dense, strict=True)


def test_a_huge_test_value_overflows_without_a_warning():
    tiny, huge = np.array([[1e-30], [3e-30]], np.float32), np.array([[1e38]], np.float32)
    for form in FORMS.values():
        out = scaled(form(huge), fitted("standard", form(tiny), 1))
        assert out.dense.sum() + out.values.sum() == np.inf


def test_without_a_scaler_rows_become_float32_and_float32_is_not_copied():
    rows, sparse = np.array([2, 0]), sparse_inputs(DENSE)
    assert scaled(dense_inputs(DENSE), None).dense is DENSE
    assert scaled(sparse, None).values is sparse.values
    double = DoubleInputs(DENSE.astype(np.float64))
    assert_array_equal(scaled(double, None).dense, DENSE, strict=True)
    for inputs in (dense_inputs(DENSE), double, sparse):
        assert_array_equal(matrix(scaled(inputs, None, rows)), DENSE[rows], strict=True)


def test_what_is_done_is_said():
    dense, sparse = dense_inputs(DENSE), sparse_inputs(DENSE)
    off = " (--scale none turns this off)"
    some = "; not used, constant in the training rows:"
    for setting, inputs, said in (
        ("auto", dense, f"dense features scaled to mean 0, deviation 1{off}{some} 2 features"),
        ("auto", sparse, f"sparse features divided by their largest |value|{off}{some} 1 feature"),
        ("standard", sparse, f"sparse features scaled to deviation 1{off}{some} 1 feature"),
        ("none", sparse, f"{some[2:]} 1 feature"),
    ):
        assert fit(setting, inputs, 5)[1] == said
    assert fit("none", dense_inputs(DENSE[:, :3]), 3) == (None, None)
    known = "auto, none, standard, max, robust, ple, quantile"
    with pytest.raises(UsageError, match=f"scale must be one of {known}; got 'x'"):
        fit("x", dense, 5)


@pytest.mark.parametrize(
    ("values", "in_scale"),
    [
        ([0] * 999 + [1], True),
        ([0.25, 0.5], True),  # spans half of its largest
        ([0.26, 0.5], False),
        ([-1, 1], True),
        ([0, 1.01], False),
        ([-0.9, -1], False),  # far from 0 for its span
        ([0, 0.01], True),
        ([0, 0.0099], False),
        ([1, 1], False),  # constant
        ([2, 2], False),
        (NORMAL * 0.6 + 0.4, True),
        (NORMAL * 1.9 - 0.3, True),
        ([*NORMAL, 20.0], True),
        (NORMAL * 0.4 + 2, False),
        (NORMAL * 2.5, False),
        (NORMAL + 1, False),
    ],
)
def test_dense_columns_out_of_scale_are_standardised(values, in_scale):
    scaler = fitted("auto", column(values), 1)
    assert (scaler is None) == in_scale
    if scaler is not None:
        out = scaled(column(values), scaler).dense
        assert_allclose(out.mean(), 0, atol=1e-6)
        assert_allclose(out.std(), 0 if np.std(values) == 0 else 1, rtol=1e-5)
    both = np.stack([np.resize(values, 1000), np.arange(1000.0)], axis=1)
    assert fitted("auto", DoubleInputs(both), 2) is not None, "one out of scale: all are scaled"


@pytest.mark.parametrize(
    ("values", "in_scale"),
    [
        ([1, 1], False),  # constant
        ([1, 0.5], True),
        ([0.001, 0.0001], True),
        ([-10, 1], True),
        ([0, 0], True),
        ([0.0009, 0], False),
        ([1, -10.01], False),
        ([1e9, 1], False),
    ],
)
def test_sparse_features_out_of_scale_are_divided_by_their_largest(values, in_scale):
    inputs = sparse_inputs(np.float32([values]).T)
    scaler = fitted("auto", inputs, 2)
    assert (scaler is None) == in_scale
    if scaler is not None:
        largest = np.abs(scaled(inputs, scaler).values).max()
        assert_allclose(largest, 0 if np.ptp(values) == 0 else 1, rtol=1e-6)
        assert scaler.scale[1] == 1  # a feature that does not occur


@pytest.mark.parametrize("form", FORMS)
def test_moments_of_parts_merge_to_those_of_all_rows(form):
    cuts, form = [0, 1, 100, 101, 300], FORMS[form]
    parts = [ColumnMoments.of(form(HOLES[a:b]), 5) for a, b in pairwise(cuts)]
    merged, whole = reduce(ColumnMoments.merged, parts), ColumnMoments.of(form(HOLES), 5)
    assert merged.rows == 300
    for found, expected in zip(merged, whole, strict=True):
        assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    deviation = HOLES.astype(np.float64).std(axis=0)
    assert_allclose(merged.statistics.deviation, deviation, rtol=1e-6, atol=1e-12)


@pairs(setting=["standard", "max", "none"], form=FORMS)
def test_the_mean_square_of_scaled_rows_follows_from_moments(form, setting):
    inputs = form(HOLES)
    scaler = fitted(setting, inputs)
    out = matrix(scaled(inputs, scaler)).astype(np.float64)
    found = ColumnMoments.of(inputs, 5).mean_square(scaler)
    assert found == pytest.approx(np.square(out).sum() / 300, rel=1e-6)


@pairs(setting=["auto", "standard", "max", "none"], rows=[None, np.array([5, 1, 7])])
def test_statistics_of_few_values_need_no_memory_for_all_features(setting, rows):
    inputs = sparse_inputs(HOLES[:9] * 20)
    narrow, note = fit(setting, inputs, 5, rows)
    wide, said = fit(setting, inputs, 10_000, rows)
    assert said == note and (wide is None) == (narrow is None)
    if wide is not None:
        assert_array_equal(wide.scale[:5], narrow.scale)
        assert (wide.scale[5:] == 1).all() and not wide.mean.any()


def test_a_feature_with_a_large_number_costs_nothing():
    inputs = csr_inputs(np.array([0, 1, 2]), np.int32([0, MAX_INDEX]), np.float32([1, 2]))
    assert fit("auto", inputs, MAX_INDEX + 1) == (None, None)
