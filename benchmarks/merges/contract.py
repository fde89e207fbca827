"""The interface of a way to merge, and the check that the merge is right.

Before each merge, a member writes new numbers at some places of its change. After it, the sum must
have the sums of both members' numbers there.
"""

import time
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Setting = dict[str, Any]

FLOATS_PER_MB: Final = 250_000
PLACES: Final = 64
TIMEOUT_S: Final = 60.0


class WrongSum(Exception):
    """The sum of a merge is not that of the changes."""


class Member(Protocol):
    """One of two servers; its place is 0 or 1."""

    change: Floats  # [P], its own and writable
    total: Floats  # [P], the sum after a merge

    def connect(self) -> None:
        """Connect with the other one; both are called at the same time."""

    def merge(self, number: int) -> None:
        """Leave the sum of both changes in `total`; numbers increase."""


class MemberModule(Protocol):
    """A module of a way to merge between two processes."""

    def Member(self, folder: Path, place: int, count: int, setting: Setting) -> Member: ...


class Group(Protocol):
    """Two members, as the benchmark sees them."""

    def merge(self, number: int) -> float:
        """One merge: seconds from its start until the second member has the sum."""

    def close(self) -> None:
        """End both."""


@cache
def places(count: int) -> NDArray[np.intp]:
    """Indices of up to 64 of `count` parameters, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, PLACES).astype(np.intp))


def merge_at(member: Member, place: int, number: int, at: float) -> float:
    """Merge at time.monotonic() `at`; returns the time of the end. WrongSum if it is wrong."""
    here = places(len(member.change))
    member.change[here] = np.arange(len(here)) + 1000 * number + 10 * place
    while (rest := at - time.monotonic()) > 0.0:
        time.sleep(rest)
    member.merge(number)
    end = time.monotonic()
    if not np.array_equal(member.total[here], 2 * np.arange(len(here)) + 2000 * number + 10):
        raise WrongSum(f"merge {number}: got {member.total[here]}")
    return end


def check_everything(member: Member, place: int, number: int) -> None:
    """A merge that compares every parameter; WrongSum if one is wrong."""
    count = len(member.change)
    changes = [np.random.default_rng(each).random(count, np.float32) for each in (0, 1)]
    member.change[:] = changes[place]
    member.merge(number)
    if wrong := np.count_nonzero(member.total != changes[0] + changes[1]):
        raise WrongSum(f"{wrong} of {count} parameters are wrong")


def touched(count: int) -> Floats:
    """An array whose pages are all mapped, so that no merge has to wait for them."""
    return np.full(count, np.nan, np.float32)
