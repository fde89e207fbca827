"""Times at which a run reached a target, interpolated between its evaluations."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Arrival(NamedTuple):
    """The moment at which a run reached a target."""

    seconds: float  # training seconds
    rows: float  # trained on


def arrival(history: Iterable[dict[str, Any]], target: float) -> Arrival | None:
    """The moment at which the test loss of `history` fell to `target`; None if it never did.

    The loss is taken as linear in rows, and in seconds, between the first evaluation at or below
    the target and the one before it. Evaluations without a finite loss are left out.
    """
    before: dict[str, Any] | None = None
    for point in history:
        loss = point["test_loss"]
        if loss is None:
            continue
        if loss <= target:
            part = (before["test_loss"] - target) / (before["test_loss"] - loss) if before else 1.0
            start = before or point
            return Arrival(
                *(start[axis] + part * (point[axis] - start[axis]) for axis in ("seconds", "rows"))
            )
        before = point
    return None
