"""A count of the bytes that a GPU worker has copied between host and device, and of the time."""

from dataclasses import dataclass


@dataclass(slots=True)
class Transfers:
    """Transfers in one direction or in both; for one thread."""

    bytes: int = 0
    seconds: float = 0.0  # during which the link was in use, as measured on the device

    def add(self, count: int, seconds: float) -> None:
        self.bytes += count
        self.seconds += seconds

    def take(self) -> "Transfers":
        """Return what was counted since the last call, and start again from zero."""
        taken = Transfers(self.bytes, self.seconds)
        self.bytes, self.seconds = 0, 0.0
        return taken
