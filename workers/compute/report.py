"""The report of a worker on a finished lease."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import (
    ACTIVE,
    EXTRA_WEIGHT,
    LOSS,
    METRIC_SUMS,
    ROWS,
    SKIPPED,
    SKIPPED_ROW,
    UPDATES,
)
from hogbatch.wire.messages import Done, Failed, Lease


def report(
    lease: Lease,
    totals: NDArray[np.float64],
    seconds: float,
    rows: int | None = None,
    **merging: Any,
) -> Done | Failed:
    """Return the message for totals[TOTALS] of the kernels and the seconds of computing.

    `rows` are expected to be done, by default those of the lease. A lease that was revoked before
    its end has failed, even if some of its updates were written. `merging` has the fields of `Done`
    that only a worker with a replica sets.
    """
    if int(totals[ROWS]) != (lease.stop - lease.start if rows is None else rows):
        return Failed(f"lease {lease.number} was revoked after {int(totals[ROWS])} rows")
    updates = int(totals[UPDATES])
    return Done(
        lease=lease.number,
        rows=int(totals[ROWS]),
        updates=updates,
        seconds=seconds,
        loss=max(0.0, float(totals[LOSS])),  # rounding must not make a sum of losses negative
        skipped=int(totals[SKIPPED]),
        metric_sums=tuple(float(each) for each in totals[METRIC_SUMS:])
        if lease.task != "train"
        else (),
        active=float(totals[ACTIVE]) / updates if updates else 0.0,
        skipped_row=int(totals[SKIPPED_ROW]),
        extra_weight=float(totals[EXTRA_WEIGHT]),
        **merging,
    )
