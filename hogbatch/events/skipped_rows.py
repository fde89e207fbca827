"""Warnings about rows that were skipped because their gradient was not finite."""

import numpy as np

from hogbatch.data.batch import Inputs
from hogbatch.events.event import RowsOftenSkipped

WARNING_FRACTION = 0.001  # of the rows


def largest_feature(inputs: Inputs, row: int) -> float:
    """The largest |feature| of a row; nan if any is nan, 0 if the row has none."""
    if len(inputs.indptr):
        values = inputs.values[inputs.indptr[row] : inputs.indptr[row + 1]]
    else:
        values = inputs.dense[row]
    return float(np.abs(values).max(initial=0))


def skipped_warning(event: RowsOftenSkipped, largest: float) -> str:
    """The warning for the user; `largest` is the largest |feature| of the skipped row."""
    named, row = "", event.skipped_row - 1
    if event.skipped_row:
        named = f" (row {row} of the training set, largest |feature| {largest:.3g})"
    return (
        f"{100 * event.skipped / event.rows:.2g} % of the rows had no finite loss and were "
        f"skipped{named}: scale features (--scale standard) and labels, or lower --lr, now "
        f"{event.rate:.3g}"
    )
