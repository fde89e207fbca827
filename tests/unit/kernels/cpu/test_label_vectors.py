"""Compiled label vectors, beside their formulas in NumPy on dense matrices."""

import numpy as np
import pytest

from hogbatch.data.batch import Examples, dense_inputs, multi_labels
from hogbatch.data.csr import to_csr
from hogbatch.kernels.cpu import label_vectors as kernels
from hogbatch.model.label_vectors import LabelVectors
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


def dense(vectors):
    found = np.zeros((F, C))
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


def test_sums_are_ranked_and_have_the_loss_of_softmax(rows, true, random):
    matrix = random.standard_normal((F, C)) * (random.random((F, C)) < 0.05)
    matrix[::7] = 0.5  # rows with all features have products with all labels
    vectors = LabelVectors(*to_csr(dense_inputs(matrix.astype(np.float32)))[1:])
    scores = random.standard_normal((N, C)).astype(np.float32)
    powers = random.random((2, C)).astype(np.float32) + 1
    sums = np.array([(1, 0, 0), (1, 3, 1), (1, 2, 0), (0, 1, 1)], np.float32)
    best, losses = np.zeros((N, len(sums), K), np.int32), np.zeros((N, len(sums)))
    given = to_csr(dense_inputs(rows)), lists(true), vectors, sums, powers, scores.copy()
    for bounds in ((0, 25), (25, N)):
        kernels.rank_sums(*given, best, losses, *bounds)
    products = unit(rows) @ matrix
    for s, (factor, weight, power) in enumerate(sums):
        expected = factor * scores + weight * powers[int(power)] * products
        if factor:
            assert (best[:, s] == np.argsort(-expected, axis=1)[:, :K]).all()
            logs = expected - np.log(np.exp(expected).sum(axis=1, keepdims=True))
            means = -(logs * true).sum(axis=1) / np.maximum(true.sum(axis=1), 1)
            np.testing.assert_allclose(losses[:, s], means, rtol=1e-4, atol=1e-6)
        else:  # other labels have equal scores
            ranked = np.take_along_axis(expected, best[:, s], axis=1)
            np.testing.assert_allclose(ranked, -np.sort(-expected, axis=1)[:, :K], atol=1e-6)
            assert np.isnan(losses[:, s]).all()
