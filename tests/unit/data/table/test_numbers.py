"""Columnar files for models that were trained on other files."""

import numpy as np
import pandas as pd
import pytest

from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.raw import Columns
from hogbatch.errors import DataError
from tests.support.reading import read_for_model

FRAME = pd.DataFrame({"b": [2, 4.5], "extra": ["x", "y"], "y": [0, 1], "a": [1, 3]})


@pytest.fixture
def train(write):
    return write("train.csv", "a,b,y\n1,2,0\n3,4.5,1\n5,6,1\n")


@pytest.mark.parametrize("form", ["to_parquet", "to_feather"])
def test_columns_are_matched_by_name_for_a_model_and_for_a_test_set(tmp_path, train, form):
    path, columns = tmp_path / "later", load(train, fractions=Fractions(0)).columns
    getattr(FRAME, form)(path)
    raw = read_for_model(path, 2, columns=columns)
    test = load(train, files={"test": path}, scale="none").sets["test"]
    assert raw.inputs.dense.tolist() == test.inputs.dense.tolist() == [[1, 2], [3, 4.5]]
    assert raw.labels.tolist() == [0, 1]
    getattr(FRAME.drop(columns="y"), form)(path)
    assert read_for_model(path, 2, columns=columns).labels is None


def test_labels_that_a_prediction_does_not_use_may_be_missing_or_anything(write):
    path = write("later.csv", "a,y,b\n1,,2\n3,?,4.5\n")
    raw = read_for_model(path, 2, columns=Columns(("a", "b"), "y", 2), labels=False)
    assert (raw.inputs.dense.tolist(), raw.labels) == ([[1, 2], [3, 4.5]], None)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (FRAME.assign(a=["x", "3"]), "row 0.*: column 'a'.*: expected a number; got 'x'"),
        (FRAME.assign(a=[1.0, np.nan]), "row 1.*: column 'a': expected a number; got a missing va"),
        (FRAME.drop(columns="a"), r"later\.parquet: expected the 2 features .* no column 'a'"),
    ],
)
def test_cells_that_are_not_numbers_and_missing_features_are_named(
    tmp_path, train, frame, complaint
):
    path = tmp_path / "later.parquet"
    frame.to_parquet(path)
    with pytest.raises(DataError, match=complaint):
        read_for_model(path, 2, columns=load(train, fractions=Fractions(0)).columns)
