"""Compiled label vectors, beside their formulas in NumPy on dense matrices."""

import numpy as np
import pytest

from hogbatch.data.batch import Examples, dense_inputs, multi_labels
from hogbatch.data.csr import to_csr
from hogbatch.kernels.cpu.label_vectors import LOWEST, select
from hogbatch.model.label_vectors import NEAREST, LabelVectors, NearestRows
from hogbatch.model.ranking import Ranking
from hogbatch.run import label_vectors

N, F, C, K = 60, 40, 30, 5


@pytest.fixture(scope="module")
def random():
    return np.random.default_rng(5)


@pytest.fixture(scope="module")
def rows(random):
    values = random.random((N, F)) * (random.random((N, F)) < 0.3)
    values[4], values[5] = 0, 1
    return values.astype(np.float32)


@pytest.fixture(scope="module")
def true(random):
    """Some labels have no row, and some rows no label."""
    found = random.random((N, C)) < 0.1
    found[:, 3], found[8] = False, False
    return found


def lists(true):
    found = to_csr(dense_inputs(true.astype(np.float32)))
    return multi_labels(found.indptr, found.indices)


def unit(matrix):
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(norms > 0, norms, 1)


def dense(vectors, width=C):
    found = np.zeros((F, width))
    for feature in range(F):
        own = slice(vectors.indptr[feature], vectors.indptr[feature + 1])
        assert (np.diff(vectors.labels[own]) > 0).all()
        found[feature, vectors.labels[own]] = vectors.values[own]
    return found


@pytest.mark.parametrize("most", [F, 6])
def test_vectors_are_unit_sums_of_unit_rows_cut_to_their_largest_values(
    rows, true, most, monkeypatch
):
    """Also if the labels are divided into parts."""
    monkeypatch.setattr(label_vectors, "VALUES", most)
    monkeypatch.setattr(label_vectors, "LABELS", 7)
    examples = Examples(to_csr(dense_inputs(rows)), lists(true), F)
    found = dense(label_vectors.build(examples, examples.labels, C))
    whole = unit(unit(true.astype(float)).T @ unit(rows)).T  # [F, C]
    least = np.sort(whole, axis=0)[-most]
    np.testing.assert_allclose(found, np.where(whole >= least, whole, 0), atol=1e-6)


def test_each_training_row_has_a_vector_cut_to_its_largest_values_and_its_labels(
    rows, true, monkeypatch
):
    monkeypatch.setattr(label_vectors, "VALUES", 6)
    rows = np.where(rows == 1, np.arange(1, F + 1), rows).astype(np.float32)  # no equal ones
    examples = Examples(to_csr(dense_inputs(rows)), lists(true), F)
    found = label_vectors.build_sources(examples, C, nearest=True).nearest
    whole = unit(rows).T
    least = np.sort(whole, axis=0)[-6]
    kept = np.where(whole >= least, whole, 0)
    np.testing.assert_allclose(dense(found.vectors, N), kept, atol=1e-6)
    assert found.labels.tolist() == np.nonzero(true)[1].tolist()
    assert found.indptr.tolist() == [0, *np.cumsum(true.sum(axis=1))]
    assert label_vectors.build_sources(examples, C, nearest=False).nearest is None


def by_nearest(rows, others, true, k):
    """The sums of squared cosines of the nearest of `others`, at most k, by label."""
    cosines = np.maximum(unit(rows) @ unit(others).T, 0)
    least = -np.sort(-cosines, axis=1)[:, k - 1 : k]
    return np.where(cosines >= least, cosines, 0) ** 2 @ true


@pytest.mark.parametrize("has_nearest", [True, False])
def test_sums_are_ranked_with_the_softmax_over_all_labels(rows, true, random, has_nearest):
    """A label without a product may be among the best."""
    matrix = random.standard_normal((F, C)) * (random.random((F, C)) < 0.05)
    matrix[::7] = 0.5  # rows with all features have products with all labels
    vectors = LabelVectors(*to_csr(dense_inputs(matrix.astype(np.float32)))[1:])
    scores = random.standard_normal((N, C)).astype(np.float32)
    powers = random.random((2, C)).astype(np.float32) + 1
    others = random.standard_normal((90, F)) * (random.random((90, F)) < 0.5)
    near_labels = random.random((90, C)) < 0.2
    near_lists, near = lists(near_labels), np.zeros((N, C))
    nearest = NearestRows(
        LabelVectors(*to_csr(dense_inputs(unit(others).T.astype(np.float32)))[1:]),
        near_lists.indptr,
        near_lists.indices,
    )
    if has_nearest:
        near = by_nearest(rows, others, near_labels, NEAREST)
    sums = np.array(
        [(1, 0, 0, 0), (1, 3, 1, 0), (1, 2, 0, 0.5), (0, 1, 1, 0), (0, 0, 0, 1)], np.float32
    )
    given = vectors, nearest if has_nearest else None, sums, powers, N
    ranking = Ranking(lambda _, out: np.copyto(out, scores), *given)
    labels = lists(true)
    found = ranking(to_csr(dense_inputs(rows)), (labels.indptr, labels.indices), K)
    products = unit(rows) @ matrix
    for s, (factor, weight, power, own) in enumerate(sums):
        expected = factor * scores + weight * powers[int(power)] * products + own * near
        columns, best = found.columns[:, s], np.sort(-expected, axis=1)[:, :K]
        np.testing.assert_allclose(np.take_along_axis(expected, columns, axis=1), -best, atol=1e-6)
        if factor:  # of the others, equal scores are in no order, and no more is known
            assert (columns == np.argsort(-expected, axis=1)[:, :K]).all()
            np.testing.assert_allclose(found.scores[:, s], -best, atol=1e-6)
            totals = np.exp(expected - expected.max(axis=1, keepdims=True)).sum(axis=1)
            np.testing.assert_allclose(found.totals[:, s], totals, rtol=1e-5)
            np.testing.assert_allclose(found.true[:, s], (expected * true).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("count", [7, 64, 300])
@pytest.mark.parametrize("values", [3, 1000])
def test_the_highest_products_are_selected_from_all_blocks(random, count, values):
    """Of equal ones, the first; fewer products than places leave the lowest score."""
    products = random.integers(-values, values, count).astype(np.float32)
    scores, columns = np.empty(20, np.float32), np.empty(20, np.int32)
    select(products, scores, columns)
    best = np.argsort(-products, kind="stable")[:20]
    assert columns[: len(best)].tolist() == best.tolist()
    assert scores[: len(best)].tolist() == products[best].tolist()
    assert (scores[len(best) :] == LOWEST).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("has_product", [True, False])
def test_a_total_is_nan_if_a_score_is_not_finite(value, has_product):
    """Wherever it is: also if it is far below the others, or of a label with a product."""
    scores, matrix = np.zeros((2, C), np.float32), np.zeros((F, C), np.float32)
    scores[1, 4], matrix[:, 4 if has_product else 5] = value, 1
    vectors = LabelVectors(*to_csr(dense_inputs(matrix))[1:])
    one = np.array([[1, 1, 0, 0]], np.float32), np.ones((1, C), np.float32)
    ranking = Ranking(lambda _, out: np.copyto(out, scores), vectors, None, *one, 2)
    rows = to_csr(dense_inputs(np.ones((2, F), np.float32)))
    totals = ranking(rows, (np.zeros(3, np.int64), np.empty(0, np.int32)), K).totals
    assert np.isnan(totals).ravel().tolist() == [False, True]
