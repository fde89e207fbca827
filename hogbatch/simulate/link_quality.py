"""Delivery of messages: delayed, and on a bad link lost, duplicated or reordered."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """Quality of a connection. By default that of ZeroMQ on one server: no loss, in order."""

    delay: float = 50e-6  # seconds, mean of an exponential distribution
    loss: float = 0.0  # probability
    duplication: float = 0.0  # probability
    ordered: bool = True


@dataclass(slots=True)
class Link:
    """One direction of one connection."""

    quality: LinkQuality
    rng: Random
    _last: float = 0.0

    def arrivals(self, now: float, certain: bool = False) -> list[float]:
        """Arrival times of a message sent `now`: one, or two, or none unless it is `certain`."""
        quality, rng = self.quality, self.rng
        if quality.loss and not certain and rng.random() < quality.loss:
            return []
        times = 2 if quality.duplication and rng.random() < quality.duplication else 1
        return [self._arrival(now) for _ in range(times)]

    def _arrival(self, now: float) -> float:
        arrival = now + self.rng.expovariate(1 / self.quality.delay)
        if self.quality.ordered:
            arrival = self._last = max(arrival, self._last)
        return arrival
