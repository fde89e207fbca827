"""What each server sends and receives in a merge, and the memory that this takes.

Offsets and sizes count float32 numbers. Received parts that are added do not go to the receiver's
sum but to its staging area, because the receiver may still be summing: a sender may be a step
ahead. Parts that replace the receiver's own can go there directly: they contain the receiver's
part, so it has been sent.

A part of the sum is finished by one server, which sends it to the others, so all servers end with
the same bits although addition of floats is not associative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hogbatch.cluster.median import FRACTION
from hogbatch.cluster.reduction import Parts, ReductionSchedule, halving, ring
from hogbatch.errors import UsageError

SCHEDULES = {"ring": ring, "halving": halving}


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the changes of several servers are summed.

    `schedule` is used with `transfer` "float32" only; "bfloat16" and "top-k" have steps of their
    own, and so has `robust` "median", which needs `transfer` "float32".
    """

    schedule: Literal["ring", "halving"] = "ring"
    transfer: Literal["float32", "bfloat16", "top-k"] = "float32"
    robust: Literal["none", "median"] = "none"
    fraction: float = FRACTION  # of the blocks that are merged by the median

    def __post_init__(self) -> None:
        """UsageError if the settings exclude each other or are out of range."""
        if not 0.0 < self.fraction <= 1.0:
            raise UsageError(f"expected a fraction of blocks above 0, up to 1; got {self.fraction}")
        if self.robust == "median" and self.transfer != "float32":
            raise UsageError(
                f"the median of several servers is computed from float32; got {self.transfer}: "
                "use --transfer float32, which sends only the chosen blocks"
            )

    @property
    def compressed(self) -> bool:
        """Whether a part of a change may be kept for the next merge."""
        return self.transfer != "float32" or self.robust == "median"


class SentPart(NamedTuple):
    """The numbers [start, stop) of the sender's sum go to server `place`."""

    place: int
    start: int
    stop: int
    staging: int | None  # offset in the receiver's staging area; None: they replace its sum
    fresh: bool  # nothing was received there before: the sum is the sender's own change


class ReceivedPart(NamedTuple):
    """The numbers [start, stop) of the sum come from server `place`."""

    place: int
    start: int
    stop: int
    staging: int | None  # offset in the own staging area, to be added; None: they are in the sum
    fresh: bool  # nothing was received there before: the sum is the receiver's own change


class ServerStep(NamedTuple):
    """What one server does in one step; it sends before it waits for what it receives."""

    send: SentPart | None
    receive: ReceivedPart | None


def boundary(part: int, parts: int, size: int) -> int:
    """The first of `size` numbers that belongs to `part` of `parts`."""
    return part * size // parts


def steps_of(schedule: ReductionSchedule, place: int, size: int) -> tuple[ServerStep, ...]:
    """The steps of the server at `place` for a model of `size` parameters, one for each step.

    A step in which the server neither sends nor receives has neither.
    """
    used = dict[int, int]()  # staging, by receiver
    received = [False] * schedule.parts  # by the server at `place`
    steps = []
    for transfers in schedule.steps:
        send, receive, arrived = None, None, (0, 0)
        for transfer in transfers:
            start, stop = (boundary(each, schedule.parts, size) for each in transfer.parts)
            offset = None
            if transfer.then == "add":
                offset = used.get(transfer.receiver, 0)
                used[transfer.receiver] = offset + stop - start
            fresh = _none(received, transfer.parts)
            if transfer.sender == place:
                send = SentPart(transfer.receiver, start, stop, offset, fresh)
            elif transfer.receiver == place:
                receive, arrived = (
                    ReceivedPart(transfer.sender, start, stop, offset, fresh),
                    transfer.parts,
                )
        received[slice(*arrived)] = [True] * (arrived[1] - arrived[0])
        steps.append(ServerStep(send, receive))
    return tuple(steps)


def staging_size(schedule: ReductionSchedule, size: int) -> int:
    """The numbers that the staging area of any server must hold for `size` parameters."""
    used = dict[int, int]()
    for transfers in schedule.steps:
        for transfer in transfers:
            if transfer.then == "add":
                start, stop = (boundary(each, schedule.parts, size) for each in transfer.parts)
                used[transfer.receiver] = used.get(transfer.receiver, 0) + stop - start
    return max(used.values(), default=0)


def _none(received: Sequence[bool], parts: Parts) -> bool:
    return not any(received[slice(*parts)])
