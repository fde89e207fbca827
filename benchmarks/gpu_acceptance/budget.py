"""The division of the time among the stages."""

from collections.abc import Sequence
from typing import Final

SHARES: Final = {  # of the time that is left, relative to those of the later stages
    "preflight": 2.0,
    "tests": 3.0,
    "sanitizer": 1.5,
    "cli": 2.5,
    "step": 4.0,
    "together": 6.0,
}
LIMITS: Final = {"preflight": 60.0}  # seconds
SHORTEST_S: Final = 5.0  # with less, a stage would be killed before its first measurement
REPORT_S: Final = 3.0  # kept for the report at the end


def limit(stage: str, later: Sequence[str], left_s: float) -> float | None:
    """Seconds for `stage`, before the stages `later`; None if the time is too short to start it.

    Each stage gets its share of what is left, so the time that it does not use goes to later ones.
    """
    usable = left_s - REPORT_S
    whole = SHARES[stage] + sum(SHARES[each] for each in later)
    seconds = min(usable * SHARES[stage] / whole, LIMITS.get(stage, usable))
    return seconds if seconds >= SHORTEST_S else None
