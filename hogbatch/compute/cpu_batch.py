"""The largest batch of a team of CPU threads, which is also the largest measured one."""

from typing import Final

LARGEST_BATCH: Final = 64  # of a CPU thread, for large training sets
ROWS_PER_MEMBER: Final = 16  # of a team's largest batch; from there on a team is fast
LARGEST_TEAM_BATCH: Final = 512
BATCHES_PER_EPOCH: Final = 32  # smaller batches if an epoch would have fewer than this,
SMALLEST_BATCH: Final = 8  # but with at least this many rows


def largest_cpu_batch(rows: int, members: int = 1) -> int:
    """Rows of the largest batch of a team of `members` CPU threads, for `rows` training rows.

    A small set needs many updates, and large batches would leave few in each epoch.
    """
    usual = max(LARGEST_BATCH, min(ROWS_PER_MEMBER * members, LARGEST_TEAM_BATCH))
    return min(usual, max(SMALLEST_BATCH, rows // BATCHES_PER_EPOCH))
