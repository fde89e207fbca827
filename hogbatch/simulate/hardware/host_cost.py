"""The seconds of what the coordinator does in memory: copies of parameters, and epoch orders."""

from hogbatch.simulate.hardware.description import Cpu

ORDER_BYTES = 64  # random accesses to a permutation of int64: a cache line for each row


class HostCost:
    """Costs of the coordinator's process, which runs on one core."""

    def __init__(self, cpu: Cpu) -> None:
        self._memory = cpu.memory

    def copy_seconds(self, nbytes: int) -> float:
        """Seconds of copying `nbytes` bytes from memory to memory."""
        return nbytes / self._memory.copy_speed

    def shuffle_seconds(self, rows: int) -> float:
        """Seconds of drawing the random order of an epoch of `rows` rows."""
        return rows * ORDER_BYTES / self._memory.copy_speed
