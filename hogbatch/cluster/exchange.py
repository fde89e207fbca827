"""Sums of the changes of several servers, from the point of view of one of them."""

import struct
import threading
import time

import numpy as np

from hogbatch.cluster.buffers import FLOAT, ExchangeBuffers
from hogbatch.cluster.decisions.ring import ring_steps
from hogbatch.cluster.planes.base import TIMEOUT_S, Plane, PlaneError, pauses_between_polls
from hogbatch.errors import HogbatchError
from hogbatch.store.merge import delta
from hogbatch.wire.messages import Reduce

_NOTE = struct.Struct("<QII")  # of a message: merge, attempt, step


class MergeAborted(HogbatchError):
    """The attempt was to end before it was complete; the change of this server is unchanged."""


class ChangeExchange:
    """Sums the changes in the buffers of all servers of a merge.

    One thread at a time. The plane must be connected with the other servers of a merge before it,
    and again before it is repeated: a slow server may still write for the earlier attempt.
    """

    def __init__(
        self, buffers: ExchangeBuffers, plane: Plane, number: int, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`number` is that of this server, `timeout_s` how long it waits for a message."""
        self._buffers = buffers
        self._plane = plane
        self._number = number
        self._timeout_s = timeout_s
        # (merge, attempt, step, sender) of messages that are still waited for, also of later
        # attempts, which this server has not begun yet
        self._arrived = set[tuple[int, ...]]()

    def reduce(self, message: Reduce, abort: threading.Event) -> None:
        """Leave the sum of all servers' changes, each times its weight, in the buffers' `sum`.

        `message` is the same on all servers that take part. They may begin at different times, but
        only after all have ended the merge before. All get the same bits. The change stays as it
        is, so that the merge can be repeated with a larger number of the attempt, after an error or
        by fewer servers.

        MergeAborted if `abort` is set before the end; PlaneError with the number of a server that
        cannot be reached or does not answer in time.
        """
        attempt = message.merge, message.attempt
        self._arrived = {each for each in self._arrived if each[:2] >= attempt}
        try:
            self._reduce(message, abort)
        except PlaneError:
            if abort.is_set():
                raise MergeAborted("the merge was aborted") from None
            raise

    def _reduce(self, message: Reduce, abort: threading.Event) -> None:
        numbers, rank = message.numbers, message.numbers.index(self._number)
        change, total, weight = self._buffers.change, self._buffers.sum, message.weights[rank]
        if len(numbers) == 1:  # the plane is not used: writes of an earlier attempt may have failed
            self._scale(slice(0, len(total)), weight)
            return
        to, sender = numbers[(rank + 1) % len(numbers)], numbers[rank - 1]
        for number, step in enumerate(ring_steps(rank, len(numbers), len(total))):
            area = "sum"
            if number == 0 and weight == 1.0:
                area = "change"
            elif number == 0:
                self._scale(step.sent, weight)
            identity = message.merge, message.attempt, number
            self._send(to, area, step.sent, _NOTE.pack(*identity))
            self._wait((*identity, sender), abort)
            if step.adds:
                delta(total[step.received], change[step.received], weight)
        self._plane.finish()

    def _scale(self, part: slice, weight: float) -> None:
        """sum[part] = weight * change[part]."""
        with np.errstate(over="ignore", invalid="ignore"):  # the merged model is checked as a whole
            np.multiply(self._buffers.change[part], np.float32(weight), out=self._buffers.sum[part])

    def _send(self, to: int, area: str, part: slice, note: bytes) -> None:
        """Start to write a part of an area to the sum of server `to`."""
        source, target = self._buffers.offset(area), self._buffers.offset("sum")
        start, stop = FLOAT * part.start, FLOAT * part.stop
        self._plane.start(to, (source + start, source + stop), target + start, note)

    def _wait(self, awaited: tuple[int, ...], abort: threading.Event) -> None:
        """Wait for a message; PlaneError if it does not come in time, or MergeAborted."""
        deadline = time.monotonic() + self._timeout_s
        for pause in pauses_between_polls():
            if abort.is_set():
                raise MergeAborted("the merge was aborted")
            for sender, note in self._plane.notes():
                if len(note) == _NOTE.size:
                    self._arrived.add((*_NOTE.unpack(note), sender))
            if awaited in self._arrived:
                self._arrived.remove(awaited)
                return
            if time.monotonic() > deadline:
                raise PlaneError(awaited[-1], f"did not answer within {self._timeout_s:g} s")
            time.sleep(pause)
