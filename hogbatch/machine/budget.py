"""How much memory this process may still take: asked before every large allocation.

The limit is that of the machine or of the tightest cgroup, whichever leaves less. Memory that is
asked for beyond it does not fail: the kernel kills a process instead, and not always this one.
"""

from typing import NamedTuple

from hogbatch.errors import UsageError
from hogbatch.machine.linux import free_memory, memory_quota


class Available(NamedTuple):
    """Memory that can still be allocated."""

    size: int  # bytes
    limit: str  # what sets this limit, for a message; empty for the machine itself


def available() -> Available:
    """Memory that this process can still allocate."""
    free, quota = free_memory(), memory_quota()
    if quota is not None and quota < free:
        return Available(quota, " (the limit of its cgroup)")
    return Available(free, "")


def require(needed: int, purpose: str, advice: str) -> None:
    """UsageError unless `needed` bytes are available for `purpose`.

    `purpose` completes "memory for ..."; `advice` says how the user can get by with less.
    """
    if needed > available().size:
        raise too_little(needed, purpose, advice)


def too_little(needed: int, purpose: str, advice: str) -> UsageError:
    """The error for an allocation of `needed` bytes that is too large, or has failed."""
    found = available()
    return UsageError(
        f"expected {byte_size(needed)} of free memory for {purpose}; "
        f"got {byte_size(found.size)}{found.limit}: {advice}"
    )


def byte_size(size: int) -> str:
    """`size` bytes in the unit that people would use: "512 B", "3.4 MB", "12.8 GB"."""
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:,.0f} TB"
