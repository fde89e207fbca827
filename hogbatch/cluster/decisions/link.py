"""The time of transfers between two servers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLink:
    """A connection in which each server sends and receives at the same time, at full speed."""

    latency: float  # seconds from the start of a transfer of no bytes to its end
    speed: float  # bytes per second

    def seconds(self, nbytes: float) -> float:
        """The seconds of one transfer."""
        return self.latency + nbytes / self.speed
