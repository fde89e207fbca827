"""The batches that a GPU worker measures before it trains.

The worker measures them on its device; for a described server, their seconds are predicted.
"""

import math
from collections.abc import Callable, Iterator

MIN_BATCH = 16  # rows of the first measured batch; the size then doubles
MAX_BATCH_SECONDS = 0.25  # the last measured batch is the first one that takes longer
MIN_SPEEDUP = 1.02  # in rows per second; measuring stops after two doublings with less
DENSIFY_TEST_ROWS = 1024  # rows of the batch that compares sparse with dense rows


def measure_sizes(
    seconds_of: Callable[[int], float | None], rows: int
) -> Iterator[tuple[int, float]]:
    """Measure batches of doubling size, up to all `rows`; yields (rows, seconds).

    `seconds_of` returns the seconds of a batch of that many rows, or None if it does not fit into
    memory, which ends the measurements.
    """
    size, best, slow = min(MIN_BATCH, rows), 0.0, 0
    while slow < 2:
        seconds = seconds_of(size)
        if seconds is None:
            return
        yield size, seconds
        slow = slow + 1 if size / seconds < MIN_SPEEDUP * best else 0
        best = max(best, size / seconds)
        if seconds > MAX_BATCH_SECONDS or size >= rows:
            return
        size = min(2 * size, rows)


def densifying_is_faster(seconds_of: Callable[[int, bool], float | None], rows: int) -> bool:
    """Return whether a batch trains faster when its sparse rows are converted to dense rows.

    `seconds_of` returns the seconds of a batch of that many rows, converted or not, or None if it
    does not fit into memory. The training set has `rows` rows.
    """
    batch = min(DENSIFY_TEST_ROWS, rows)
    measured = (seconds_of(batch, densify) for densify in (False, True))
    sparse, dense = (math.inf if seconds is None else seconds for seconds in measured)
    return dense < sparse
