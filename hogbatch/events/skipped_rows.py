"""Warnings about rows that were skipped because their gradient was not finite."""

import numpy as np

from hogbatch.data.batch import Inputs

WARNING_FRACTION = 0.001  # of the rows


def largest_feature(inputs: Inputs, row: int) -> float:
    """The largest |feature| of a row; nan if any is nan, 0 if the row has none."""
    if len(inputs.indptr):
        values = inputs.values[inputs.indptr[row] : inputs.indptr[row + 1]]
    else:
        values = inputs.dense[row]
    return float(np.abs(values).max(initial=0))


def skipped_warning(
    skipped: int, rows: int, skipped_row: int, largest: float, rate: float
) -> str | None:
    """The warning about `skipped` out of `rows` rows; None if they are few.

    `skipped_row` is 1 + the number of one of them, as in `Done`, and `largest` its largest
    |feature|; `rate` is the learning rate.
    """
    if skipped <= WARNING_FRACTION * rows:
        return None
    named = ""
    if skipped_row:
        named = f" (row {skipped_row - 1} of the training set, largest |feature| {largest:.3g})"
    return (
        f"{100 * skipped / rows:.2g} % of the rows had no finite loss and were skipped{named}: "
        f"scale features (--scale standard) and labels, or lower --lr, now {rate:.3g}"
    )
