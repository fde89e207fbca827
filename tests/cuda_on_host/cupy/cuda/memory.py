"""cupy.cuda.memory."""

from cupy._memory import MemoryPool, OutOfMemoryError

__all__ = ["MemoryPool", "OutOfMemoryError"]
