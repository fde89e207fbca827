"""Memory that this process can still allocate, checked before every large allocation.

The limit is the free memory of the machine, the remaining quota of the tightest cgroup, or what is
left of `ulimit -v`; the smallest of these. An allocation beyond the first two does not fail.
Instead, the kernel kills a process, not always this one.
"""

from typing import Final, NamedTuple

from hogbatch.errors import UsageError
from hogbatch.machine.linux import address_space_left, free_memory, memory_quota

SMALL: Final = 1 << 20  # bytes; the check takes longer than such an allocation


class Available(NamedTuple):
    """Memory that can still be allocated."""

    size: int  # bytes
    limit: str  # source of the limit, for messages; empty for the machine


def available() -> Available:
    """Return the memory that this process can still allocate."""
    limits = {
        "": free_memory(),
        " (the limit of its cgroup)": memory_quota(),
        " (the limit of ulimit -v)": address_space_left(),
    }
    return min(Available(size, limit) for limit, size in limits.items() if size is not None)


def require(needed: int, purpose: str, advice: str) -> None:
    """Raise UsageError unless `needed` bytes are available for `purpose`.

    Up to SMALL bytes are not checked. `purpose` completes "memory for ..."; `advice` tells the user
    how to need less.
    """
    if needed > SMALL and needed > available().size:
        raise insufficient_memory(needed, purpose, advice)


def insufficient_memory(needed: int, purpose: str, advice: str) -> UsageError:
    """Return the error for an allocation of `needed` bytes that is too large or has failed."""
    found = available()
    return UsageError(
        f"expected {byte_size(needed)} of free memory for {purpose}; "
        f"got {byte_size(found.size)}{found.limit}: {advice}"
    )


def byte_size(size: int) -> str:
    """Format `size` bytes in a readable unit: "512 B", "3.4 MB", "12.8 GB"."""
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:,.0f} TB"
