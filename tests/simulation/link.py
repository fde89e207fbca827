"""Predicted times of transfers and merges between servers."""

from dataclasses import dataclass
from typing import Final, NamedTuple

FLOAT: Final = 4  # bytes
ADD_SPEED: Final = 5e9  # bytes per second that one core adds to a model in memory


@dataclass(frozen=True, slots=True)
class ServerLink:
    """A connection in which each server sends and receives at the same time, at full speed."""

    latency: float  # seconds from the start of a transfer of no bytes to its end
    speed: float  # bytes per second

    def seconds(self, nbytes: float) -> float:
        return self.latency + nbytes / self.speed


class PredictedMerge(NamedTuple):
    """The sum of the changes of all servers in a ring."""

    transfers: int  # between all servers
    sent: float  # bytes, by each server
    seconds: float


def predicted_merge(parameters: int, servers: int, link: ServerLink) -> PredictedMerge:
    """A merge of a model of `parameters` numbers, in which all servers begin at the same time."""
    steps = 2 * (servers - 1)
    sent = steps / servers * FLOAT * parameters
    added = sent / 2
    seconds = steps * link.latency + sent / link.speed + added / ADD_SPEED
    return PredictedMerge(steps * servers, sent, seconds)
