"""Merges of the changes of several servers, from the point of view of one of them."""

import threading

from hogbatch.cluster.attempt import Attempt, Mailbox
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.planes.base import TIMEOUT_S, Plane
from hogbatch.cluster.sums import reduce_float32, scale
from hogbatch.wire.messages import Reduce


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
        self._mailbox = Mailbox(plane)

    def reduce(self, message: Reduce, abort: threading.Event) -> None:
        """Leave the sum of all servers' changes, each times its weight, in the buffers' `sum`.

        `message` is the same on all servers that take part. They may begin at different times, but
        only after all have ended the merge before. All get the same bits. The change stays as it
        is, so that the merge can be repeated with a larger number of the attempt, after an error or
        by fewer servers.

        MergeAborted if `abort` is set before the end; PlaneError with the number of a server that
        cannot be reached or does not answer in time.
        """
        rank = message.numbers.index(self._number)
        weight, alone = message.weights[rank], len(message.numbers) == 1
        when, limits = (message.merge, message.attempt), (abort, self._timeout_s)
        port = Attempt(
            self._buffers, self._plane, self._mailbox, message.numbers, rank, when, limits
        )
        if alone:  # writes of an earlier attempt may have failed
            scale(self._buffers, 0, self._buffers.size, weight)
        else:
            reduce_float32(port, weight, message.schedule)
            port.finish()
