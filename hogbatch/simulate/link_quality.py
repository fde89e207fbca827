"""Messages on their way: delayed, and in a bad network lost, said twice, or overtaken."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """As ZeroMQ is on one server, unless told otherwise: nothing is lost or overtaken."""

    delay: float = 50e-6  # seconds, mean of an exponential distribution
    loss: float = 0.0  # probability
    repetition: float = 0.0  # probability
    ordered: bool = True


@dataclass(slots=True)
class Link:
    """One direction of one connection."""

    network: LinkQuality
    rng: Random
    _last: float = 0.0

    def arrivals(self, now: float, certain: bool = False) -> list[float]:
        """When a message that is sent `now` arrives: once, or twice, or never if not `certain`."""
        network, rng = self.network, self.rng
        if network.loss and not certain and rng.random() < network.loss:
            return []
        times = 2 if network.repetition and rng.random() < network.repetition else 1
        return [self._arrival(now) for _ in range(times)]

    def _arrival(self, now: float) -> float:
        arrival = now + self.rng.expovariate(1 / self.network.delay)
        if self.network.ordered:
            arrival = self._last = max(arrival, self._last)
        return arrival
