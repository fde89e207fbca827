"""The sum of float32 changes, in the steps of a ring or of halving."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from hogbatch.cluster.attempt import Attempt, MessageKey
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.transfers import (
    SCHEDULES,
    ReceivedPart,
    SentPart,
    ServerStep,
    steps_of,
)
from hogbatch.store.merge import CHUNK

Schedule = Literal["ring", "halving"]

PIECE: Final = 1 << 23  # numbers that are sent at a time in a ring, at most: 32 MB


def reduce_float32(attempt: Attempt, weight: float, schedule: Schedule) -> None:
    """Leave the sum of all servers' changes, each times its weight, in the buffers' `sum`.

    In a ring, a large model is cut into pieces, and the next step of a piece begins as soon as it
    is received, so that no server waits as long as there is something to send. Smaller pieces were
    not faster with two servers on two cores: each may wait for the scheduler.
    """
    rank, size = attempt.rank, attempt.buffers.size
    _Sum(attempt, weight, _pieces(schedule, attempt.servers, rank, size))


@lru_cache(maxsize=4)  # the same in most merges; 100 servers have a ring of 19,800 transfers
def _pieces(schedule: Schedule, servers: int, rank: int, size: int) -> list[list[ServerStep]]:
    """The pieces of the model, each with the steps of the server at `rank`."""
    steps = steps_of(SCHEDULES[schedule](servers), rank, size)
    pieces = max(1, -(-size // (servers * PIECE))) if schedule == "ring" else 1
    return [[_part(step, each, pieces) for step in steps] for each in range(pieces)]


class _Sum:
    """The progress of a sum."""

    def __init__(
        self, attempt: Attempt, weight: float, pieces: Sequence[Sequence[ServerStep]]
    ) -> None:
        """Sums `pieces`, each with its steps."""
        self._attempt, self._weight, self._pieces = attempt, weight, pieces
        self._awaited = dict[MessageKey, ReceivedPart]()  # at most one for each piece
        for piece in range(len(pieces)):
            self._begin(piece, 0)
            while (arrived := attempt.take_one_of(self._awaited.keys())) is not None:
                self._receive(arrived)
        while self._awaited:
            self._receive(attempt.wait_for_one_of(self._awaited.keys()))

    def _begin(self, piece: int, step: int) -> None:
        """Send until something is to be received."""
        for number in range(step, len(self._pieces[piece])):
            send, receive = self._pieces[piece][number]
            if send:
                self._send(send, number, piece)
            if receive:
                self._awaited[self._attempt.message(receive.rank, number, piece)] = receive
                return

    def _receive(self, message: MessageKey) -> None:
        receive = self._awaited.pop(message)
        _add(self._attempt.buffers, receive, self._weight)
        self._begin(message.piece, message.step + 1)

    def _send(self, send: SentPart, step: int, piece: int) -> None:
        area = "sum"
        if send.fresh and self._weight == 1.0:
            area = "change"
        elif send.fresh:
            scale(self._attempt.buffers, send.start, send.stop, self._weight)
        target = ("sum", send.start) if send.staging is None else ("staging", send.staging)
        self._attempt.send(send.rank, (area, send.start, send.stop), target, step, piece)


def _part(step: ServerStep, piece: int, pieces: int) -> ServerStep:
    """The part of a step that belongs to one piece."""

    def bounds(start: int, stop: int) -> tuple[int, int]:
        first, last = (each * (stop - start) // pieces for each in (piece, piece + 1))
        return first, last

    send, receive = step
    if send:
        first, last = bounds(send.start, send.stop)
        into = None if send.staging is None else send.staging + first
        send = send._replace(start=send.start + first, stop=send.start + last, staging=into)
    if receive:
        first, last = bounds(receive.start, receive.stop)
        at = None if receive.staging is None else receive.staging + first
        begin, end = receive.start + first, receive.start + last
        receive = receive._replace(start=begin, stop=end, staging=at)
    return ServerStep(send, receive)


def _add(buffers: ExchangeBuffers, receive: ReceivedPart, weight: float) -> None:
    """Add to the sum what belongs to the numbers that have arrived."""
    here, length = slice(receive.start, receive.stop), receive.stop - receive.start
    total = buffers.sum[here]
    with np.errstate(over="ignore", invalid="ignore"):  # the merged model is checked as a whole
        if receive.staging is not None:
            np.add(total, buffers.staging[receive.staging :][:length], out=total)
        elif receive.add_change and weight == 1.0:
            np.add(total, buffers.change[here], out=total)
        elif receive.add_change:
            for start in range(0, length, CHUNK):
                part = slice(start, start + CHUNK)
                total[part] += buffers.change[here][part] * np.float32(weight)


def scale(buffers: ExchangeBuffers, start: int, stop: int, weight: float) -> None:
    """sum[start:stop] = weight * change[start:stop]."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(buffers.change[start:stop], np.float32(weight), out=buffers.sum[start:stop])
