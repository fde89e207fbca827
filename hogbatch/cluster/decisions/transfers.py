"""Messages of each server in a merge, and the memory that they need.

Offsets and sizes count float32 numbers. The first part that a server receives for a place goes to
its sum, to which it adds its own change. Later parts for the same place go to its staging area,
because the receiver may still be adding to its sum: a sender may be a step ahead. Parts that
replace the receiver's own go to its sum, too: they contain the receiver's part, so it has been
sent. In a ring, no server receives two parts to add for a place, so it needs no staging area.

A part of the sum is finished by one server, which sends it to the others, so all servers end with
the same bits although addition of floats is not associative.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hogbatch.cluster.decisions.reduction import Parts, ReductionSchedule, Transfer, halving, ring

SCHEDULES = {"ring": ring, "halving": halving}


class SentPart(NamedTuple):
    """The numbers [start, stop) of the sender's sum go to server `rank`."""

    rank: int
    start: int
    stop: int
    staging: int | None  # offset in the receiver's staging area; None: they go to its sum
    fresh: bool  # nothing was received there before: the sum is the sender's own change


class ReceivedPart(NamedTuple):
    """The numbers [start, stop) of the sum come from server `rank`."""

    rank: int
    start: int
    stop: int
    staging: int | None  # offset in the own staging area, to be added; None: they are in the sum
    add_change: bool  # whether they are without the receiver's own change


class ServerStep(NamedTuple):
    """What one server does in one step; it sends before it waits for what it receives."""

    send: SentPart | None
    receive: ReceivedPart | None


def boundary(part: int, parts: int, size: int) -> int:
    """The first of `size` numbers that belongs to `part` of `parts`."""
    return part * size // parts


def steps_of(schedule: ReductionSchedule, rank: int, size: int) -> tuple[ServerStep, ...]:
    """The steps of the server at `rank` for a model of `size` parameters, one for each step.

    A step in which the server neither sends nor receives has neither.
    """
    steps = []
    for transfers in _placed(schedule, size):
        send, receive = None, None
        for transfer, (start, stop), offset, fresh in transfers:
            if transfer.sender == rank:
                send = SentPart(transfer.receiver, start, stop, offset, fresh)
            elif transfer.receiver == rank:
                add_change = transfer.then == "add" and offset is None
                receive = ReceivedPart(transfer.sender, start, stop, offset, add_change)
        steps.append(ServerStep(send, receive))
    return tuple(steps)


def staging_size(schedule: ReductionSchedule, size: int) -> int:
    """The numbers that the staging area of any server must hold for `size` parameters."""
    return max(
        (
            offset + stop - start
            for transfers in _placed(schedule, size)
            for _, (start, stop), offset, _ in transfers
            if offset is not None
        ),
        default=0,
    )


class _Placed(NamedTuple):
    """A transfer, its numbers [start, stop), and where they go."""

    transfer: Transfer
    numbers: tuple[int, int]
    staging: int | None  # offset in the receiver's staging area; None: they go to its sum
    fresh: bool  # the sender has received nothing there before


def _placed(schedule: ReductionSchedule, size: int) -> Iterator[list[_Placed]]:
    """The transfers of each step with their places in the memory of the receivers."""
    used = dict[int, int]()  # staging, by receiver
    received = defaultdict[int, list[bool]](lambda: [False] * schedule.parts)  # parts, by server
    for transfers in schedule.steps:
        placed = []
        for transfer in transfers:
            to, parts = transfer.receiver, transfer.parts
            start, stop = (boundary(each, schedule.parts, size) for each in parts)
            offset = None
            if transfer.then == "add" and not _none(received[to], parts):
                offset = used.get(to, 0)
                used[to] = offset + stop - start
            fresh = _none(received[transfer.sender], parts)
            placed.append(_Placed(transfer, (start, stop), offset, fresh))
        for transfer in transfers:  # all of a step are sent at the same time
            first, last = transfer.parts
            received[transfer.receiver][first:last] = [True] * (last - first)
        yield placed


def _none(received: Sequence[bool], parts: Parts) -> bool:
    return not any(received[slice(*parts)])
