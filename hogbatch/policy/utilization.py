"""Utilization of a worker: the rows per second that it trains, over its peak rows per second."""

from collections.abc import Sequence

Profile = Sequence[tuple[int, float]]  # (rows of a batch, seconds), as measured before training


def peak_speed(profile: Profile, teams: int = 1) -> float | None:
    """Peak rows per second of a worker that computes `teams` batches at the same time.

    That of the fastest measured batch; None if none was measured.
    """
    return teams * max(rows / seconds for rows, seconds in profile) if profile else None


def utilization(rows: int, seconds: float, peak: float | None) -> float | None:
    """Utilization of a worker that has trained on `rows` rows in `seconds` training seconds.

    None if `peak` is not known, or if no time has passed.
    """
    if peak is None or seconds <= 0:
        return None
    return rows / seconds / peak
