"""The sum of float32 changes, in the steps of a ring or of halving."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from hogbatch.cluster.transfers import SCHEDULES, Receive, Reduction, Send, ServerStep, steps_of
from hogbatch.distributed.attempt import Attempt
from hogbatch.distributed.buffers import ExchangeBuffers
from hogbatch.store.merge import CHUNK

PIECE: Final = 1 << 18  # numbers that are sent at a time in a ring: 1 MB


class _Turn(NamedTuple):
    """A step of one piece: it is sent, and later received."""

    step: int
    piece: int


def reduce_float32(attempt: Attempt, weight: float, how: Reduction) -> None:
    """Leave the sum of all servers' changes, each times its weight, in the buffers' `sum`.

    In a ring, the model is cut into pieces, and the next step of a piece begins as soon as it
    is received, so that a server adds while others send, to numbers that are still in its cache.
    """
    buffers = attempt.buffers
    schedule = SCHEDULES[how.schedule](attempt.servers)
    steps = steps_of(schedule, attempt.place, buffers.size)
    pieces = 1
    if how.schedule == "ring":
        pieces = max(1, -(-buffers.size // (attempt.servers * PIECE)))
    for sends, turn in _turns(len(steps), pieces):
        step = _piece(steps[turn.step], turn.piece, pieces)
        if sends and step.send:
            _send(attempt, step.send, turn, weight)
        elif not sends and step.receive:
            _receive(attempt, step.receive, turn, weight)


def _turns(steps: int, pieces: int) -> Iterator[tuple[bool, _Turn]]:
    """(whether to send, what) in an order that is the same on all servers.

    A piece is received one turn after it was sent, so that no server waits for another that
    has just begun to send; then it is sent in the next step.
    """
    for turn in range(pieces + steps):
        for step in reversed(range(steps + 1)):
            piece = turn - step
            if 0 <= piece < pieces:
                if step > 0:
                    yield False, _Turn(step - 1, piece)
                if step < steps:
                    yield True, _Turn(step, piece)


def _piece(step: ServerStep, piece: int, pieces: int) -> ServerStep:
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


def _send(attempt: Attempt, send: Send, turn: _Turn, weight: float) -> None:
    area = "sum"
    if send.fresh and weight == 1.0:
        area = "change"
    elif send.fresh:
        scale(attempt.buffers, send.start, send.stop, weight)
    target = ("sum", send.start) if send.staging is None else ("staging", send.staging)
    attempt.send(send.place, (area, send.start, send.stop), target, turn.step, turn.piece)


def _receive(attempt: Attempt, receive: Receive, turn: _Turn, weight: float) -> None:
    attempt.wait(receive.place, turn.step, turn.piece)
    if receive.staging is None:
        return
    buffers, factor = attempt.buffers, np.float32(weight)
    shift = receive.staging - receive.start
    with np.errstate(over="ignore", invalid="ignore"):  # the merged model is checked as a whole
        for start in range(receive.start, receive.stop, CHUNK):
            stop = min(start + CHUNK, receive.stop)
            total, arrived = buffers.sum[start:stop], buffers.staging[start + shift : stop + shift]
            if not receive.fresh:
                total += arrived
            elif weight == 1.0:
                np.add(buffers.change[start:stop], arrived, out=total)
            else:
                np.multiply(buffers.change[start:stop], factor, out=total)
                total += arrived


def scale(buffers: ExchangeBuffers, start: int, stop: int, weight: float) -> None:
    """sum[start:stop] = weight * change[start:stop]."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(buffers.change[start:stop], np.float32(weight), out=buffers.sum[start:stop])
