"""The batches that a worker measures before it trains.

The worker measures them on its device; for a described server, their seconds are predicted.
"""

import math
from collections.abc import Callable, Iterator

MIN_BATCH = 16  # rows of the first measured batch; the size then doubles
MAX_BATCH_SECONDS = 0.25  # the last measured batch is the first one that takes longer
MIN_SPEEDUP = 1.02  # in rows per second; measuring stops after two doublings with less
DENSIFY_TEST_ROWS = 1024  # rows of the batch that compares sparse with dense rows

CPU_STEP = 2  # factor between the batch sizes of a CPU worker
CPU_REPETITIONS = 5  # of each; the fastest counts, because noise only slows down
CPU_CALL_SECONDS = 2e-3  # at least, if the set has enough rows: a call takes time of its own
MAX_CPU_SECONDS = 0.1  # of all calls of a CPU worker; none begins later
MAX_CPU_MODEL_BYTES = 1 << 28  # with more parameters, which are copied, it measures nothing


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


def measure_cpu_sizes(
    seconds_of: Callable[[int, int], float], largest: int, rows: int
) -> tuple[tuple[int, float], ...]:
    """Measure batches of `largest` rows and smaller ones, down to a single row.

    `seconds_of` returns the seconds of a call that trains on a number of batches of a size, the
    first argument. A call has as many batches as take CPU_CALL_SECONDS, and at most the `rows` of
    the training set, as leases have many. Returns (rows, seconds of a batch), largest first. All
    sizes are measured in turn, so that a slow network misses repetitions, not sizes.
    """
    sizes = [largest]
    while sizes[-1] > 1:
        sizes.append(max(1, sizes[-1] // CPU_STEP))
    fastest: dict[int, float] = {}
    total = 0.0
    for size in CPU_REPETITIONS * sizes:
        if total > MAX_CPU_SECONDS:
            break
        known = fastest.get(size, math.inf)
        batches = max(1, min(math.ceil(CPU_CALL_SECONDS / known), rows // size))
        seconds = seconds_of(size, batches)
        total += seconds
        fastest[size] = min(seconds / batches, known)
    return tuple(fastest.items())


def densifying_is_faster(seconds_of: Callable[[int, bool], float | None], rows: int) -> bool:
    """Return whether a batch trains faster when its sparse rows are converted to dense rows.

    `seconds_of` returns the seconds of a batch of that many rows, converted or not, or None if it
    does not fit into memory. The training set has `rows` rows.
    """
    batch = min(DENSIFY_TEST_ROWS, rows)
    measured = (seconds_of(batch, densify) for densify in (False, True))
    sparse, dense = (math.inf if seconds is None else seconds for seconds in measured)
    return dense < sparse
