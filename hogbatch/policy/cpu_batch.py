"""The largest batches for a number of training rows; a CPU worker measures none above them."""

from typing import Final

LARGEST_BATCH: Final = 64  # of a CPU thread, for large training sets
ROWS_PER_MEMBER: Final = 16  # of a team's largest batch; from there on a team is fast
LARGEST_USEFUL_BATCH: Final = 512
BATCHES_PER_EPOCH: Final = 32  # smaller batches if an epoch would have fewer than this,
LARGE_BATCHES_PER_EPOCH: Final = 64  # or of batches with more than LARGEST_BATCH rows, than this,
SMALLEST_BATCH: Final = 8  # but with at least this many rows


def largest_cpu_batch(rows: int, members: int = 1) -> int:
    """Rows of the largest batch of a team of `members` CPU threads, for `rows` training rows.

    A small set needs many updates, and large batches would leave few in each epoch.
    """
    of_thread = min(LARGEST_BATCH, max(SMALLEST_BATCH, rows // BATCHES_PER_EPOCH))
    return max(of_thread, min(ROWS_PER_MEMBER * members, largest_batch(rows)))


def largest_batch(rows: int) -> int:
    """Rows of the largest useful batch for `rows` training rows, on any device.

    Larger ones need proportionally more rows, or do not reach losses that smaller ones reach.
    """
    return min(LARGEST_USEFUL_BATCH, max(SMALLEST_BATCH, rows // LARGE_BATCHES_PER_EPOCH))
