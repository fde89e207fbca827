"""The report of a worker on a finished lease."""

from typing import NamedTuple

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


class MergeReport(NamedTuple):
    """Fields of `Done` that only a worker with a replica sets."""

    rows: int | None = None  # expected to be done; None: all of the lease
    staleness: float = 0.0
    refused: int = 0
    too_large: int = 0
    merge_seconds: float = 0.0
    transferred: int = 0
    transfer_seconds: float = 0.0


DIRECT = MergeReport()  # of a worker that writes directly to the shared model


def report(
    lease: Lease, totals: NDArray[np.float64], seconds: float, merge: MergeReport = DIRECT
) -> Done | Failed:
    """Return the message for totals[TOTALS] of the kernels and the seconds of computing.

    A lease that was revoked before its end has failed, even if some of its updates were written.
    """
    expected = lease.stop - lease.start if merge.rows is None else merge.rows
    if int(totals[ROWS]) != expected:
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
        staleness=merge.staleness,
        refused=merge.refused,
        active=float(totals[ACTIVE]) / updates if updates else 0.0,
        too_large=merge.too_large,
        skipped_row=int(totals[SKIPPED_ROW]),
        merge_seconds=merge.merge_seconds,
        transferred=merge.transferred,
        transfer_seconds=merge.transfer_seconds,
        extra_weight=float(totals[EXTRA_WEIGHT]),
    )
