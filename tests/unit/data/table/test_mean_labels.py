"""The encoding of training rows with mean labels of categories."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hogbatch.data.folds import rows_of_member
from hogbatch.data.load import prepare
from hogbatch.data.order import Fractions, fold_numbers
from hogbatch.data.table import encoders
from hogbatch.data.table.given import later_set, training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.data.table.means import Values

ROWS = 600
RANDOM = np.random.default_rng(0)
TOWNS = np.array([f"town {n}" for n in RANDOM.integers(60, size=ROWS)])
LABELS = RANDOM.normal(size=60)[np.unique(TOWNS, return_inverse=True)[1]] + RANDOM.normal(size=ROWS)


def rows(values=60):
    """A category with 60 values, one with two, which has no means, and a number."""
    size = RANDOM.normal(size=ROWS)
    numbers = {f"x{n}": RANDOM.normal(size=ROWS) for n in range(12 if values < 60 else 0)}
    towns = TOWNS if values == 60 else [f"town {int(name[5:]) % values}" for name in TOWNS]
    return pd.DataFrame({"size": size, "town": towns, "two": list("ab") * 300, **numbers})


def prepared(frame, y=LABELS, category_means="auto", **options):
    raw = training_set(frame, y, None, TableOptions(**options))
    fractions = Fractions(0.0, 0.25)
    return prepare(raw, fractions=fractions, loss="auto", category_means=category_means)


def features_of(examples):
    if not examples.sparse:
        return examples.inputs.dense
    inputs, dense = examples.inputs, np.zeros((examples.rows, examples.features), np.float32)
    dense[np.repeat(np.arange(examples.rows), np.diff(inputs.indptr)), inputs.indices] = (
        inputs.values
    )
    return dense


@pytest.mark.parametrize(
    ("values", "sparse", "options"),
    [(60, True, {}), (25, False, {}), (60, True, {"text": ("note",)})],
    ids=["sparse", "dense", "text"],
)
def test_training_rows_have_means_of_other_rows(values, sparse, options):
    frame = rows(values)
    if options:
        frame["note"] = RANDOM.choice(["red car", "blue car", "old house"], ROWS)
    data = prepared(frame, **options)
    plain = prepared(frame, category_means="none", **options)
    (town, features) = next(x for x in data.table.features_by_column() if x[0].name == "town")
    assert data.train.sparse == sparse and town.encoder.labels == 1
    place = features.stop - 1
    for name in ("train", "validation"):
        own = features_of(data.sets[name])
        expected = features_of(plain.sets[name])
        np.testing.assert_array_equal(np.delete(own, place, axis=1), expected)
    column = features_of(data.train)[:, place]
    targets = data.train.labels.values
    assert np.corrcoef(column, targets)[0, 1] > 0.3, "the means are those of the labels"
    later = later_set(frame, LABELS, data.table, data.train.features)
    whole = set(features_of_dense(later, place).round(6).tolist())
    found = set(features_of(data.sets["validation"])[:, place].round(6).tolist())
    assert found <= whole, "other rows have the means of all training rows"
    assert not {*column.round(6).tolist()} <= whole


def features_of_dense(raw, place):
    if not len(raw.inputs.indptr):
        return raw.inputs.dense[:, place]
    return raw.inputs.values[raw.inputs.indices == place]


def test_rows_without_labels_do_not_move_the_means():
    """Labels that are one row off would have no correlation with the means."""
    frame, y = rows(), LABELS.copy()
    y[:50] = np.nan
    kept = prepared(frame[50:].reset_index(drop=True), y[50:])
    raw = training_set(frame, y, None, TableOptions()).labelled()
    data = prepare(raw, fractions=Fractions(0.0, 0.25), category_means="auto")
    np.testing.assert_array_equal(features_of(data.train), features_of(kept.train))


@pytest.mark.parametrize("y", [np.arange(ROWS) % 2, np.arange(ROWS) % 3])
def test_each_class_has_a_mean(y):
    data = prepared(rows(), np.array(["no", "yes", "may"])[y])
    targets = data.values["train"].targets
    (town,) = (each.encoder for each in data.table.columns if each.name == "town")
    assert town.labels == targets.shape[1] == (1 if y.max() == 1 else 3)


def test_few_values_have_no_means(monkeypatch):
    monkeypatch.setattr(encoders, "MEANS_VALUES", 60)
    data = prepared(rows())
    assert not data.values
    assert all(getattr(each.encoder, "labels", 0) == 0 for each in data.table.columns)


@pytest.mark.parametrize("values", [60, 25], ids=["sparse", "dense"])
def test_a_member_has_means_of_its_own_training_rows(values):
    """The labels of the rows that it holds out have no influence on any of its features."""
    data = prepared(rows(values))
    town, features = next(x for x in data.table.features_by_column() if x[0].name == "town")
    place, known = features.stop - 1, data.values["train"]
    held_out = fold_numbers(data.train.rows, 3, 0, None) == 0
    changed = Values(known.places, np.where(held_out[:, np.newaxis], 50.0, known.targets))
    other = replace(data, values={**data.values, "train": changed})
    for name in ("train", "validation"):
        own, same = (features_of(rows_of_member(each, 2, 0)[name]) for each in (data, other))
        np.testing.assert_array_equal(own, same)
    targets = rows_of_member(data, 2, 0)["train"].labels.values
    train = features_of(rows_of_member(data, 2, 0)["train"])[:, place]
    assert np.corrcoef(train, targets)[0, 1] > 0.3
    assert train.std() > 0.2 and town.encoder.labels == 1
