"""Scores of many rows by compiled kernels, against those of NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from hogbatch.kernels.backbone import Backbone as Layers
from hogbatch.model import inputs, trained
from tests.support.trained_models import SCALER, model_for

ROWS = 150  # more than a batch of the kernel


@pytest.mark.parametrize(
    ("hidden", "members", "form"),
    [
        ((), 1, np.asarray),
        ((20, 4), 1, np.asarray),
        ((20, 4), 3, np.asarray),
        ((20,), 1, scipy.sparse.csr_array),
    ],
)
def test_compiled_scores_are_those_of_numpy(hidden, members, form, monkeypatch):
    """Found: rows in another order, padded outputs, parameters of another member."""
    one, *others = (model_for(hidden=hidden, scaler=SCALER, seed=seed) for seed in range(members))
    model = replace(one, others=tuple(each.tensors for each in others))
    random = np.random.default_rng(2)
    rows = random.standard_normal((ROWS, 5)) * (random.random((ROWS, 5)) < 0.6)
    expected, best = model.scores(form(rows)), model.top(form(rows), 2)
    assert "_compiled" not in vars(model)
    for name in ("PRODUCTS", "FIRST_PRODUCTS"):
        monkeypatch.setattr(trained, name, 0)
    np.testing.assert_allclose(model.scores(form(rows)), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(model.top(form(rows), 2), best)
    assert "_compiled" in vars(model)
    np.testing.assert_allclose(
        model.scores(form(rows), np.float64), expected, rtol=1e-5, atol=1e-5
    )  # with NumPy


@pytest.mark.parametrize("members", [1, 2])
def test_layers_below_dense_ones_are_computed_by_compiled_kernels(members, monkeypatch):
    """Found: rows of another part, rows left out, parameters of another member."""
    text = "4x5x2,conv:3x2x2,relu,pool:2"
    one, *others = (model_for(features=40, backbone=text, seed=seed) for seed in range(members))
    model = replace(one, others=tuple(each.tensors for each in others))
    rows = np.random.default_rng(2).standard_normal((ROWS, 40))
    expected, used = model.scores(rows), []
    for name in ("PRODUCTS", "FIRST_PRODUCTS"):
        monkeypatch.setattr(trained, name, 0)
    monkeypatch.setattr(inputs, "Backbone", lambda *given: used.append(given) or Layers(*given))
    np.testing.assert_allclose(model.scores(rows), expected, rtol=1e-5, atol=1e-5)
    assert used


def test_output_major_layers_are_not_compiled(monkeypatch):
    monkeypatch.setattr(trained, "FIRST_PRODUCTS", 0)
    model = model_for(output_major=True)
    model.scores(np.zeros((2, 5)))
    assert "_compiled" not in vars(model)
