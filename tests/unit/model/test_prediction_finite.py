"""Rows with numbers that are not finite, or too large, are named; no class is made of them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from hogbatch.data import memory
from hogbatch.data.scale import Scaler
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from hogbatch.model import trained
from tests.support.pairs import pairs
from tests.support.trained_models import model_for

METHODS = {
    "scores": lambda model, rows: model.scores(rows),
    "predict": lambda model, rows: model.predict(rows),
    "predict_proba": lambda model, rows: model.predict_proba(rows),
    "top": lambda model, rows: model.top(rows, 1),
    "top_proba": lambda model, rows: model.top_proba(rows, 1),
}
FORMS = {
    "array": np.asarray,
    "in Fortran order": np.asfortranarray,
    "list": lambda matrix: matrix.tolist(),
    "csr": scipy.sparse.csr_array,
}
TOO_LARGE = r"row 5, column 3: 1e\+300 is beyond the range"


def rows(value, dtype=np.float64):
    """Rows [7, 5] with `value` in row 5, column 3."""
    made = np.ones((7, 5), dtype)
    made[5, 3] = value
    return made


def steep(loss="softmax"):
    """A linear model with weights of a hundred times the usual size."""
    model = model_for(loss, hidden=())
    return replace(model, tensors={name: 100 * each for name, each in model.tensors.items()})


@pairs(
    value={
        **{str(each): (each, f"got {each:g} in row 5, column 3") for each in (np.nan, -np.inf)},
        "1e300": (1e300, TOO_LARGE),
    },
    form=FORMS,
    method=METHODS,
)
def test_what_is_not_finite_or_too_large_is_named_with_row_and_column(method, form, value):
    with pytest.raises(UsageError, match=value[1]) as raised:
        method(model_for(), form(rows(value[0])))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("form", ["array", "csr"])
def test_what_is_too_large_only_when_it_is_scaled_is_named_and_what_only_before_computed(form):
    model = model_for(scaler=Scaler(np.zeros(5), np.array([1, 1, 1, 1e-10, 1])))
    with pytest.raises(UsageError, match=r"row 5, column 3: 1e\+30 is beyond"):
        model.predict(FORMS[form](rows(1e30)))
    model = model_for(scaler=Scaler(np.zeros(5), np.array([1, 1, 1, 1e300, 1])))
    got = model.scores(FORMS[form](np.array([[1, 1, 1, 1e300, 1]])))
    np.testing.assert_allclose(got, model_for().scores(rows(1.0)[5:6]), rtol=1e-5)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "scores"])
def test_scores_that_overflow_make_no_class(method):
    with pytest.raises(UsageError, match=r"row 5 .* scores are beyond the range of float32"):
        METHODS[method](steep(), rows(3e38, np.float32))


@pytest.mark.parametrize("loss", ["logistic", "squared", "multilabel", "softmax"])
def test_models_of_every_kind_name_the_row_in_a_later_chunk_too(loss, monkeypatch):
    monkeypatch.setattr(trained, "CHUNK", 15)  # 3 rows of 5 features
    monkeypatch.setattr(memory, "BLOCK_VALUES", 2)
    for value, said in (
        (np.nan, "got nan in row 5, column 3"),
        (1e300, "row 5, column 3"),
        (np.float32(3e38), "row 5 "),
    ):
        with pytest.raises(UsageError, match=said):
            steep(loss).predict(rows(value))


def test_results_that_do_not_fit_into_memory_are_refused_before_they_are_allocated(monkeypatch):
    monkeypatch.setattr(budget, "SMALL", 0)
    monkeypatch.setattr(budget, "free_memory", lambda: 80)
    with pytest.raises(UsageError, match="84 B of free memory for results for 7 rows and 3"):
        model_for().scores(rows(1.0))
