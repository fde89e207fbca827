"""Checks of memory: how much, shared memory, huge pages."""

from typing import Final

from hogbatch.doctor.facts import Facts, Unknown
from hogbatch.doctor.verdict import Verdict, ok, unknown, warn
from hogbatch.machine.budget import byte_size

LITTLE_MEMORY: Final = 10**9  # bytes
SHMEM: Final = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
SHMEM_USED: Final = ("always", "within_size", "advise", "force")  # values that allow huge pages


def check_memory(facts: Facts) -> Verdict:
    """The memory that a run can use."""
    found = facts.memory
    if isinstance(found.free, Unknown):
        return unknown(found.free)
    total = "" if isinstance(found.total, Unknown) else f" of {byte_size(found.total)}"
    value, available = f"{byte_size(found.free)}{total} available", found.free
    if isinstance(found.left, int):
        limit = f" of {byte_size(found.limit)}" if isinstance(found.limit, int) else ""
        value += f"; {byte_size(found.left)}{limit} left in the cgroup"
        available = min(available, found.left)
    if available < LITTLE_MEMORY:
        return warn(
            value,
            "runs that need more are refused; close other programs, or raise the memory limit of "
            "the container",
        )
    return ok(value)


def check_shared_memory(facts: Facts) -> Verdict:
    """Whether processes can share memory."""
    found = facts.memory
    if found.memfd_error:
        return warn(
            f"memfd_create: {found.memfd_error}",
            "no run with worker processes can start; allow memfd_create(2) in the seccomp profile "
            "of the container",
        )
    size = "" if isinstance(found.shm, Unknown) else f" ({byte_size(found.shm)})"
    return ok(f"memfd; /dev/shm{size} is not used")


def check_huge_pages(facts: Facts) -> Verdict:
    """Whether shared memory can use huge pages.

    Linux 6.1 or newer moves it into huge pages on request, whatever the settings are; older
    versions require that `shmem_enabled` permits it.
    """
    found = facts.memory
    settings = f"enabled={_setting(found.transparent)}, shmem_enabled={_setting(found.shmem)}"
    if isinstance(found.huge_pages, Unknown):
        return unknown(found.huge_pages)
    if found.huge_pages or found.shmem in SHMEM_USED:
        return ok(f"shared memory uses them ({settings})")
    if isinstance(found.shmem, Unknown):
        return unknown(Unknown(f"{found.shmem.reason}; shared memory uses small pages"))
    return warn(
        f'transparent huge pages of shared memory are "{found.shmem}"',
        "reading rows of large data takes up to a quarter longer; allow huge pages",
        f"echo advise | sudo tee {SHMEM}",
    )


def _setting(fact: str | Unknown) -> str:
    return "unknown" if isinstance(fact, Unknown) else fact
