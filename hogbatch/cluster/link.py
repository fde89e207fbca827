"""The time of transfers between two servers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hogbatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class ServerLink:
    """A connection in which each server sends and receives at the same time, at full speed."""

    latency: float  # seconds from the start of a transfer of no bytes to its end
    speed: float  # bytes per second

    def seconds(self, nbytes: float) -> float:
        """The seconds of one transfer."""
        return self.latency + nbytes / self.speed


def fit(transfers: Sequence[tuple[float, float]]) -> ServerLink:
    """The link that explains measured transfers (bytes, seconds).

    Least squares of the relative errors, so that short transfers determine the latency. UsageError
    if the transfers have fewer than two sizes, or long ones take no longer than short ones.
    """
    sizes, seconds = np.array(transfers, np.float64).reshape(-1, 2).T
    if len(np.unique(sizes)) < 2:
        raise UsageError(
            f"a link is fitted to transfers of at least two sizes; got {len(np.unique(sizes))}"
        )
    terms = np.stack([np.ones_like(sizes), sizes], axis=1) / seconds[:, None]
    (latency, per_byte), *_ = np.linalg.lstsq(terms, np.ones_like(seconds), rcond=None)
    if per_byte <= 0.0:
        raise UsageError("long transfers took no longer than short ones; measure longer ones")
    return ServerLink(max(0.0, float(latency)), 1.0 / float(per_byte))
