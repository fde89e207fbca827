"""Label vectors and nearest rows in a model: their scores are added to those of the network."""

from dataclasses import replace

import numpy as np
import pytest

from hogbatch.data.batch import dense_inputs
from hogbatch.data.csr import to_csr
from hogbatch.errors import UsageError
from hogbatch.kernels.contract import SOFTMAX_MANY
from hogbatch.model.label_vectors import LabelVectors, NearestRows, factors
from tests.support.trained_models import expected_scores, model_for

RANDOM = np.random.default_rng(3)
VECTORS = RANDOM.standard_normal((5, 6)).astype(np.float32) * (RANDOM.random((5, 6)) < 0.5)
ROWS = RANDOM.standard_normal((40, 5)).astype(np.float32) * (RANDOM.random((40, 5)) < 0.6)
ROWS[7] = 0


def vectors_of(matrix):
    """Label vectors from matrix[F, C]."""
    return LabelVectors(*to_csr(dense_inputs(matrix))[1:])


TRAINED = RANDOM.standard_normal((80, 5)).astype(np.float32)  # training rows of norm 1
TRAINED /= np.linalg.norm(TRAINED, axis=1, keepdims=True)
LABELS = RANDOM.random((80, 6)) < 0.3
NEAREST = NearestRows(
    vectors_of(np.ascontiguousarray(TRAINED.T)),
    np.concatenate(([0], np.cumsum(LABELS.sum(axis=1)))),
    np.nonzero(LABELS)[1].astype(np.int32),
)


def with_vectors(**changes):
    model = model_for("multilabel-softmax")
    return replace(model, label_vectors=vectors_of(VECTORS), **changes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [True, False])
def test_products_of_unit_rows_are_added(sparse, dtype):
    """A row without values has none."""
    model = with_vectors()
    norms = np.maximum(np.linalg.norm(ROWS.astype(np.float64), axis=1, keepdims=True), 1e-9)
    expected = expected_scores(model, ROWS) + ROWS.astype(np.float64) / norms @ VECTORS
    rows = dense_inputs(ROWS)
    scores = model.scores(to_csr(rows) if sparse else rows, dtype)
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5 if dtype is np.float32 else 1e-9)


@pytest.mark.parametrize("nearest", [3, 50])
def test_the_squared_cosines_of_the_nearest_rows_are_added_for_their_labels(nearest, monkeypatch):
    """Times the weight; rows with a negative cosine, or none, are not near."""
    monkeypatch.setattr("hogbatch.model.label_vectors.NEAREST", nearest)
    norms = np.maximum(np.linalg.norm(ROWS, axis=1, keepdims=True), 1e-9)
    cosines = np.maximum(ROWS / norms @ TRAINED.T, 0)
    cosines[cosines < -np.sort(-cosines, axis=1)[:, nearest - 1 : nearest]] = 0
    model = with_vectors(nearest_rows=NEAREST.times(2.5))
    expected = with_vectors().scores(ROWS) + 2.5 * cosines**2 @ LABELS
    np.testing.assert_allclose(model.scores(ROWS), expected, rtol=0, atol=1e-4)


def test_they_are_added_to_the_mean_of_an_ensemble():
    ensemble = with_vectors(others=(model_for("multilabel-softmax", seed=2).tensors,))
    alone = replace(ensemble, label_vectors=None).scores(ROWS)
    products = with_vectors().label_vectors.scores(to_csr(dense_inputs(ROWS)), 6)
    np.testing.assert_allclose(ensemble.scores(ROWS), alone + products, atol=1e-5)


def test_the_best_labels_are_those_of_all_scores(monkeypatch):
    """Also if only a few rows are multiplied at a time."""
    model = with_vectors()
    best = np.argsort(-model.scores(ROWS), axis=1)[:, :3]
    monkeypatch.setattr("hogbatch.model.trained.MAX_PRODUCTS", 7 * 6)
    assert (model.top(ROWS, 3) == best).all()


@pytest.mark.parametrize("kind", [None, SOFTMAX_MANY])
@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
@pytest.mark.parametrize(("output_major", "nearest"), [(True, NEAREST), (False, None)])
def test_many_rows_are_ranked_by_compiled_kernels_with_the_same_results(
    output_major, nearest, seeds, kind, monkeypatch
):
    """In blocks of rows, which are dense or sparse; of a network and of an ensemble."""
    made = [model_for("multilabel-softmax", output_major=output_major, seed=seed) for seed in seeds]
    others = tuple(each.tensors for each in made[1:])
    vectors = {"label_vectors": vectors_of(VECTORS), "nearest_rows": nearest}
    model = replace(made[0], **vectors, others=others)
    true = np.arange(0, 82, 2), np.tile(np.array([1, 4], np.int32), 40)
    expected = list(model.summaries(ROWS, 3, kind, true))
    monkeypatch.setattr("hogbatch.model.trained.COMPILED", 0)
    monkeypatch.setattr("hogbatch.model.ranking.CELLS", 7 * 6)
    for rows in (ROWS, to_csr(dense_inputs(ROWS))):
        found = list(model.summaries(rows, 3, kind, true))
        assert len(found) == 6
        for name in ("columns", "best", "true", *(["total", "highest"] if kind else [])):
            one, other = (
                np.concatenate([getattr(part, name) for part in parts])
                for parts in (found, expected)
            )
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("limit", [2, 6])
@pytest.mark.parametrize("nearest", [NEAREST, None])
def test_an_approximate_ranking_compares_the_labels_that_vectors_and_rows_rank_highest(
    nearest, limit, monkeypatch
):
    """All labels if too few have a positive sum of these: of row 7, which has no values."""
    monkeypatch.setattr("hogbatch.model.ranking.SHORTLIST", limit)
    network = model_for("multilabel-softmax", output_major=True)
    model = replace(network, label_vectors=vectors_of(VECTORS), nearest_rows=nearest)
    rows, expected = to_csr(dense_inputs(ROWS)), model.scores(ROWS)
    added = sum(each.scores(rows, 6) for each in (model.label_vectors, nearest) if each)
    found = (added > 0).any(axis=1)
    for row in np.flatnonzero(found):
        expected[row, np.argsort(-added[row], kind="stable")[limit:]] = -np.inf
    columns, probabilities = model.top_proba(rows, 1, approximate=True)
    assert (columns[:, 0] == expected.argmax(axis=1)).all()
    chances = np.exp(expected - expected.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probabilities[:, 0], 1 / chances.sum(axis=1), rtol=1e-4)
    assert not found[7] and found.sum() > 30


def test_an_approximate_ranking_needs_label_vectors():
    with pytest.raises(UsageError, match="a model with label vectors"):
        model_for("multilabel-softmax").top(ROWS, 2, approximate=True)


def test_compiled_kernels_refuse_scores_beyond_float32(monkeypatch):
    rows, vectors = ROWS.copy(), VECTORS.copy()
    rows[:, 4], vectors[4] = 0, np.inf
    rows[9, 4] = 1
    model = replace(with_vectors(), label_vectors=vectors_of(vectors))
    monkeypatch.setattr("hogbatch.model.trained.COMPILED", 0)
    monkeypatch.setattr("hogbatch.model.ranking.CELLS", 7 * 6)
    with pytest.raises(UsageError, match=r"row 9 \(counted from 0\): the model's scores"):
        model.top(rows, 2)


def test_the_factor_of_a_label_without_rows_is_that_of_one_row():
    found = factors(2.0, 0.5, np.array([0, 1, 4]))
    assert found.tolist() == [2, 2, 4] and found.dtype == np.float32
