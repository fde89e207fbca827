"""Permutation importances of models of dense and sparse rows, and of tables."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import scipy.sparse

import hogbatch
from hogbatch.model.importances import permutation_importances
from tests.support.trained_models import ENCODINGS, model_for

ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)


@pytest.mark.parametrize("loss", sorted(ENCODINGS))
def test_a_column_without_weights_has_no_importance_and_others_have_one(loss):
    model = model_for(loss, hidden=())
    model.tensors["layers.0.weight"][3] = 0
    scores = model.scores(ROWS)
    y = scores > 0 if "multilabel" in loss else model.predict(ROWS)
    found = [
        permutation_importances(model, form(ROWS), y.astype(float) if y.ndim == 1 else y * 1)
        for form in (np.array, scipy.sparse.csr_array)
    ]
    for dense, sparse in zip(*found, strict=True):
        assert dense.column == sparse.column
        assert dense.mean == pytest.approx(sparse.mean, rel=1e-4, abs=1e-6)
    by_name = {each.column: each for each in found[0]}
    assert by_name.pop("3").mean == pytest.approx(0, abs=1e-6)
    assert max(each.mean for each in by_name.values()) > 0.01


def test_columns_of_a_model_without_an_encoding_are_matched_by_name():
    model = replace(model_for("squared", hidden=()), feature_names=tuple("abcde"))
    frame, y = pandas.DataFrame(ROWS, columns=[*"abcde"]), model.predict(ROWS)
    assert permutation_importances(model, frame[[*"edcba"]], y) == (
        permutation_importances(model, ROWS, y)
    )


def test_the_features_of_a_column_are_shuffled_together():
    random = np.random.default_rng(1)
    frame = pandas.DataFrame(
        {"side": random.choice(["up", "down"], 300), "size": random.normal(size=300)}
    )
    run = hogbatch.train(
        frame,
        (frame.side == "up") * 5.0 + frame["size"],
        hidden=(),
        epochs=20,
        loss="squared",
        verbose=False,
    )
    later = frame.sample(frac=1, random_state=0)
    y = (later.side == "up") * 5.0 + later["size"]
    side, size = hogbatch.permutation_importances(run.model, later, y, repeats=3)
    assert (side.column, size.column) == ("side", "size")
    # Half of the shuffled rows are wrong by 5, and the loss is half of the squared error.
    assert side.mean == pytest.approx(25 / 4, rel=0.2) and size.mean == pytest.approx(1, rel=0.3)
    assert 0 < side.deviation < 1
    with pytest.raises(ValueError, match="repeats: expected at least 1; got 0"):
        hogbatch.permutation_importances(run.model, later, y, repeats=0)
