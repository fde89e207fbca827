from unittest.mock import Mock

import numpy as np
import pytest

from hogbatch.data.batch import csr_inputs, dense_inputs
from hogbatch.events.event import RowsOftenSkipped
from hogbatch.run.components import RunComponents, largest_feature, skipped_warning

DENSE = np.array([[1, -7, 3], [0, 0, 0], [2, np.nan, 1], [-np.inf, 0, 5]], np.float32)


def sparse(dense):
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int64)
    return csr_inputs(indptr, columns.astype(np.int32), dense[rows, columns])


@pytest.mark.parametrize("inputs", [dense_inputs(DENSE), sparse(DENSE)], ids=["dense", "sparse"])
def test_the_largest_feature_of_a_row_is_found_whatever_its_sign(inputs):
    found = [largest_feature(inputs, row) for row in range(len(DENSE))]
    np.testing.assert_array_equal(found, [7, 0, np.nan, np.inf])


def test_the_feature_is_that_of_the_skipped_row():
    recorded, run = [], Mock()
    run.setup.loaded.train.inputs, run.recorder.record = dense_inputs(DENSE), recorded.append
    RunComponents.record(run, RowsOftenSkipped(31, 10_000, 1, 0.05))
    assert "largest |feature| 7)" in recorded[0].warning


@pytest.mark.parametrize(
    ("event", "share", "named", "rate"),
    [
        (
            RowsOftenSkipped(31, 10_000, 18, 0.05),
            "0.31",
            " (row 17 of the training set, largest |feature| 3e+38)",
            "0.05",
        ),
        (RowsOftenSkipped(500, 10_000, 0, 0.0123456), "5", "", "0.0123"),
    ],
)
def test_a_warning_names_share_row_feature_and_rate(event, share, named, rate):
    assert skipped_warning(event, 3e38) == (
        f"{share} % of the rows had no finite loss and were skipped{named}: scale features "
        f"(--scale standard) and labels, or lower --lr, now {rate}"
    )
