"""The rows that each member of an ensemble holds out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from hogbatch.data.folds import rows_of_member
from hogbatch.data.load import prepare
from hogbatch.data.memory import raw_set
from hogbatch.data.order import Fractions, Groups, fold_numbers

ROWS = 250


def loaded(X, y, validation=0.2, weights=None):
    raw = raw_set(X, y, weights)
    return prepare(raw, fractions=Fractions(0, validation), scale="none", drop_constant=False)


def identities(examples, form):
    """The numbers of the rows, which are their only features, and their labels."""
    inputs, labels = examples.inputs, examples.labels
    numbers = inputs.values if form == "sparse" else inputs.dense[:, 0]
    if form == "lists":
        assert (np.diff(labels.indptr) == 1 + numbers % 2).all()
        return numbers.tolist()
    assert (labels.values == numbers % 3).all() and (labels.weights % 4 == numbers % 4).all()
    return numbers.tolist()


@pytest.mark.parametrize("form", ["dense", "sparse", "lists"])
def test_each_row_is_held_out_by_one_of_five_members_and_trains_the_others(form, monkeypatch):
    numbers = np.arange(1, ROWS + 1)
    X = numbers[:, np.newaxis].astype(np.float32)
    weights = None if form == "lists" else 4.0 + numbers % 4  # `Labels.weights` have the mean 1
    y = [[0, 1][: 1 + n % 2] for n in numbers] if form == "lists" else numbers % 3
    if form == "sparse":
        X = sparse.csr_matrix(X)
    monkeypatch.setattr(
        "hogbatch.data.load.weighted",
        lambda labels, given, *_: (
            labels if given is None else labels._replace(weights=given.astype(np.float32))
        ),
    )
    data = loaded(X, y, weights=weights)
    assert data.validation_drawn
    held_out = []
    for number in range(1, 6):
        rows = rows_of_member(data, number, seed=3)
        train, own = (identities(rows[name], form) for name in ("train", "validation"))
        assert sorted(train + own) == numbers.tolist() and len(own) == ROWS // 5
        held_out += own
    assert sorted(held_out) == numbers.tolist()
    sixth, first = (rows_of_member(data, number, 3)["validation"] for number in (6, 1))
    assert identities(sixth, form) == identities(first, form)


def test_folds_have_equal_numbers_of_each_class_and_depend_on_the_seed():
    classes = np.repeat([0.0, 1.0, 2.0], [100, 31, 9]).astype(np.float32)
    numbers = fold_numbers(140, 4, 0, classes)
    for each in range(3):
        counts = np.bincount(numbers[classes == each], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(numbers).tolist() == [35] * 4
    assert (numbers != fold_numbers(140, 4, 1, classes)).any()


def test_validation_rows_that_were_not_drawn_one_by_one_are_shared_by_all_members():
    X, y = np.random.default_rng(0).normal(size=(ROWS, 2)), np.arange(ROWS) % 2
    raw = raw_set(X, y)
    given = prepare(raw, {"validation": lambda _: raw_set(X, y)}, fractions=Fractions(0, None))
    assert not given.validation_drawn
    grouped = replace(raw, groups=Groups(np.arange(ROWS) // 2, "group"))
    assert not prepare(grouped, fractions=Fractions(0, 0.2)).validation_drawn
    assert prepare(raw, fractions=Fractions(0, 0.2)).validation_drawn
    assert not prepare(raw, fractions=Fractions(0.2, 0)).validation_drawn
