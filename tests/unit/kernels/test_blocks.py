"""Scores block by block, against all of them at once."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.data.batch import csr_inputs, dense_inputs, multi_labels, single_labels
from hogbatch.kernels import blocks
from hogbatch.kernels.blocks import LayerWeights, ScoreSummary
from hogbatch.kernels.contract import (
    LINEAR,
    LOSS,
    MULTILABEL,
    SKIPPED,
    SOFTMAX,
    SOFTMAX_MANY,
    TANH,
    TOTALS,
)
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.pairs import pairs

OUTPUTS = 7


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "OUTPUTS", OUTPUTS)


def summarise(scores, k, kind=None, true=None):
    """All `scores`, block by block; `scores` stay as they are."""
    summary = ScoreSummary(len(scores), k, kind, true)
    for first in range(0, scores.shape[1], OUTPUTS):
        summary.add(first, scores[:, first : first + OUTPUTS].copy())
    return summary


def some_scores(rows, outputs, seed=0, levels=None):
    """Random scores; only so many different ones, if `levels` are given."""
    random = np.random.default_rng(seed)
    if levels:
        return random.integers(0, levels, (rows, outputs)).astype(np.float32)
    return random.standard_normal((rows, outputs), np.float32) * 3


def some_labels(rows, outputs, seed=0):
    """Lists of labels; the first row has none, the second all."""
    random = np.random.default_rng(seed)
    present = random.random((rows, outputs)) < 0.2
    present[0], present[1] = False, True
    return multi_labels(
        np.concatenate([[0], np.cumsum(present.sum(axis=1))]),
        np.nonzero(present)[1].astype(np.int32),
    )


class TestRanking:
    @pairs(levels=[None, 1, 2, 5], outputs=[1, 5, 7, 8, 14, 40], k=[1, 3, 5, 40])
    def test_best_are_those_of_a_stable_sort(self, k, outputs, levels):
        scores, k = some_scores(30, outputs, levels=levels), min(k, outputs)
        summary = summarise(scores, k)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        assert_array_equal(summary.columns, expected)
        assert_array_equal(summary.best, np.take_along_axis(scores, expected, axis=1))

    def test_what_is_not_finite_comes_last_and_no_column_twice(self):
        scores = some_scores(4, 20)
        scores[0, :] = np.nan
        scores[1, 3], scores[1, 9] = np.nan, -np.inf
        scores[2, :] = -np.inf
        summary = summarise(scores, 20)
        assert_array_equal(np.sort(summary.columns, axis=1), np.tile(np.arange(20), (4, 1)))
        assert set(summary.columns[1, -2:]) == {3, 9}
        assert_array_equal(summary.finite, [False, False, False, True])

    def test_probabilities_of_a_softmax_are_fractions_of_all_and_others_per_score(self):
        scores = some_scores(6, 40) + 300  # their exponentials are beyond float32
        fractions = np.exp(scores.astype(np.float64) - 300)
        fractions /= fractions.sum(axis=1, keepdims=True)
        summary = summarise(scores, 4, SOFTMAX)
        expected = np.take_along_axis(fractions, summary.columns, axis=1)
        assert_allclose(summary.probabilities(), expected, rtol=1e-4)
        summary = summarise(some_scores(6, 40), 4)
        assert_allclose(summary.probabilities(), 1 / (1 + np.exp(-summary.best)), rtol=1e-5)


class TestLoss:
    @pairs(outputs=[3, 7, 40], kind=[SOFTMAX, MULTILABEL, SOFTMAX_MANY])
    def test_losses_are_those_of_the_reference(self, kind, outputs):
        scores, rows = some_scores(20, outputs), np.arange(20)
        scores[3, 1], scores[4, 0], scores[5, 2] = np.nan, np.inf, -np.inf
        labels = some_labels(20, outputs)
        true = labels.indptr, labels.indices
        if kind == SOFTMAX:
            classes = np.random.default_rng(1).integers(0, outputs, 20)
            labels = single_labels(classes.astype(np.float32))
            true = np.arange(21), classes.astype(np.int32)
        losses = summarise(scores, 1, kind, true).losses()
        for row in rows:
            totals = np.zeros(TOTALS)
            with np.errstate(invalid="ignore"):
                NUMPY_KERNELS.loss_and_metrics(
                    kind, labels, rows[row : row + 1], outputs, scores[row : row + 1], totals
                )
            assert np.isfinite(losses[row]) == (totals[SKIPPED] == 0), row
            if not totals[SKIPPED]:
                assert losses[row] == pytest.approx(totals[LOSS], rel=1e-5, abs=1e-6)
        assert np.isnan(losses[[3, 4, 5]]).all()

    def test_no_rounding_makes_a_loss_negative(self):
        scores = np.abs(some_scores(200, 20)) * 100 + 100
        true = np.arange(201) * 20, np.tile(np.arange(20, dtype=np.int32), 200)
        losses = summarise(scores, 1, MULTILABEL, true).losses()
        assert losses.min() == 0 and losses.max() < 0.01


def layers_of(widths, output_major, seed=3):
    random, found = np.random.default_rng(seed), []
    for fan_in, width in pairwise(widths):
        last = len(found) == len(widths) - 2
        weights = random.standard_normal((fan_in, width), np.float32)
        if last and output_major:
            weights = np.ascontiguousarray(weights.T)
        bias = random.standard_normal(width, np.float32)
        found.append(LayerWeights(weights, bias, LINEAR if last else TANH, last and output_major))
    return tuple(found)


class TestLayers:
    @pytest.mark.parametrize(
        ("widths", "output_major", "sparse"),
        [
            *(((5, 20), False, False), ((5, 20), False, True)),
            *(((5, 3, 20), True, False), ((5, 9, 4, 6), True, True), ((5, 3, 20), False, True)),
        ],
    )
    def test_blocks_are_the_formula(self, widths, output_major, sparse):
        random = np.random.default_rng(4)
        rows = random.standard_normal((6, 5)).astype(np.float32) * (random.random((6, 5)) < 0.5)
        layers = layers_of(widths, output_major)
        matrix = scipy.sparse.csr_array(rows)
        inputs = dense_inputs(rows)
        if sparse:
            inputs = csr_inputs(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)
        expected = rows.astype(np.float64)
        for layer in layers:
            weights = layer.weights.T if layer.output_major else layer.weights
            expected = expected @ weights + layer.bias
            expected = np.tanh(expected) if layer.activation == TANH else expected
        found = [
            (first, scores.copy())
            for first, scores in blocks.blocks(layers[-1], blocks.hidden(layers, inputs))
        ]
        assert [first for first, _ in found] == list(range(0, widths[-1], OUTPUTS))
        whole = np.concatenate([scores for _, scores in found], axis=1)
        assert_allclose(whole, expected, rtol=1e-5, atol=1e-5)


def test_neither_all_scores_nor_a_second_copy_of_weights_is_in_memory(monkeypatch):
    monkeypatch.undo()
    layers = layers_of((8, 64, 100_000), True)
    inputs = dense_inputs(np.zeros((64, 8), np.float32))
    tracemalloc.start()
    summary = ScoreSummary(64, 5, SOFTMAX_MANY)
    for first, scores in blocks.blocks(layers[-1], blocks.hidden(layers, inputs)):
        summary.add(first, scores + np.arange(scores.shape[1], dtype=np.float32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # all scores, as all weights, are 26e6 bytes
