"""What people are told of rows that the guard skipped."""

import numpy as np

from hogbatch.data.batch import Inputs

WORTH_SAYING = 0.001  # share of the rows


def largest_feature(inputs: Inputs, row: int) -> float:
    """The largest |feature| of a row; nan if one of them is, 0 if it has none."""
    if len(inputs.indptr):
        values = inputs.values[inputs.indptr[row] : inputs.indptr[row + 1]]
    else:
        values = inputs.dense[row]
    return float(np.abs(values).max(initial=0))


def skipped_warning(skipped: int, rows: int, skipped_row: int, largest: float, rate: float) -> str:
    """What to say of `skipped` out of `rows` rows done; empty if they are few.

    `skipped_row` is 1 + the number of one of them, as `Done` has it, and `largest` its largest
    |feature|; `rate` is the learning rate.
    """
    if skipped <= WORTH_SAYING * rows:
        return ""
    named = ""
    if skipped_row:
        named = f" (row {skipped_row - 1} of the training set, largest |feature| {largest:.3g})"
    return (
        f"{100 * skipped / rows:.2g} % of the rows gave no finite loss and were left out{named}: "
        f"scale features (--scale standard) and labels, or lower --lr, now {rate:.3g}"
    )
