"""What a worker says of a finished lease."""

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import HITS, LOSS, ROWS, SKIPPED, UPDATES
from hogbatch.wire.messages import Done, Failed, Work


def report(work: Work, totals: NDArray[np.float64], seconds: float) -> Done | Failed:
    """Turn kernels' totals[TOTALS] and the seconds of computing into a message.

    A lease whose fence was raised under way is not done, whatever it has written before.
    """
    if int(totals[ROWS]) != work.stop - work.start:
        return Failed(f"fence of lease {work.lease} was revoked after {int(totals[ROWS])} rows")
    return Done(
        lease=work.lease,
        rows=int(totals[ROWS]),
        updates=int(totals[UPDATES]),
        seconds=seconds,
        loss=max(0.0, float(totals[LOSS])),  # a sum of losses; rounding must not take it below 0
        skipped=int(totals[SKIPPED]),
        hits=tuple(float(hits) for hits in totals[HITS:]) if work.task == "evaluate" else (),
    )
