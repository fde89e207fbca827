"""Columnar files for models that were trained on other files."""

import numpy as np
import pandas as pd
import pytest

from hogbatch.data.load import inputs_for, load
from hogbatch.errors import DataError

ROWS = "a,b,y\n1,2,0\n3,4.5,1\n5,6,1\n"
FRAME = pd.DataFrame({"b": [2, 4.5], "extra": ["x", "y"], "y": [0, 1], "a": [1, 3]})


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text(ROWS)
    return load(path, test_fraction=0)


@pytest.mark.parametrize("write", ["to_parquet", "to_feather"])
def test_columns_are_matched_by_name(tmp_path, trained, write):
    path = tmp_path / "later"
    getattr(FRAME, write)(path)
    raw = inputs_for(path, 2, columns=trained.columns)
    assert raw.inputs.dense.tolist() == [[1, 2], [3, 4.5]]
    assert raw.labels.tolist() == [0, 1]
    assert raw.messages == (
        f"{path}: 1 column is ignored because the training data lack it: 'extra'",
    )
    getattr(FRAME.drop(columns="y"), write)(path)
    assert inputs_for(path, 2, columns=trained.columns).labels is None


def test_a_test_set_may_be_a_parquet_file(tmp_path):
    (tmp_path / "train.csv").write_text(ROWS)
    FRAME.to_parquet(tmp_path / "test.parquet")
    data = load(tmp_path / "train.csv", test=tmp_path / "test.parquet", scale="none")
    assert data.test.inputs.dense.tolist() == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        (["x", 3], "row 0.*: column 'a'.*: expected a number; got 'x'"),
        ([1.0, np.nan], "row 1.*: column 'a': expected a number; got a missing value"),
    ],
)
def test_cells_that_are_not_numbers_are_named(tmp_path, trained, column, complaint):
    path = tmp_path / "later.parquet"
    FRAME.assign(
        a=pd.Series(column, dtype=object).map(str) if "x" in column else column
    ).to_parquet(path)
    with pytest.raises(DataError, match=complaint):
        inputs_for(path, 2, columns=trained.columns)


def test_a_missing_feature_is_named(tmp_path, trained):
    path = tmp_path / "later.parquet"
    FRAME.drop(columns="a").to_parquet(path)
    with pytest.raises(
        DataError, match=r"later\.parquet: expected the 2 features .* no column 'a'"
    ):
        inputs_for(path, 2, columns=trained.columns)
