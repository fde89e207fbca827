"""Merges of the changes of several servers, from the point of view of one of them."""

import threading
from collections.abc import Sequence

from hogbatch.cluster import compressed
from hogbatch.cluster.attempt import Attempt, Mailbox, MergeAborted
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.areas import areas
from hogbatch.cluster.decisions.transfers import Reduction
from hogbatch.cluster.planes.base import TIMEOUT_S, Plane, PlaneError
from hogbatch.cluster.sums import reduce_float32, scale
from hogbatch.errors import UsageError

__all__ = ["ChangeExchange", "MergeAborted", "PlaneError"]


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
        self._uncommitted = False  # whether `kept` is to become the residual

    def reduce(
        self,
        merge: int,
        attempt: int,
        places: Sequence[int],
        own_weight: float,
        how: Reduction,
        abort: threading.Event,
    ) -> None:
        """Leave the sum of all servers' changes, each times its weight, in the buffers' `sum`.

        `places` are the numbers of the servers that take part, the same on all of them. They may
        begin at different times, but only after all have ended the merge before. All get the same
        bits. The change stays as it is, so that the merge can be repeated with a
        larger number `attempt`, after an error or by fewer servers; so does what compression has
        kept back, until :meth:`commit`. With how.robust "median", the sum is the geometric median
        of the changes, weighted and times the sum of the weights.

        MergeAborted if `abort` is set before the end; PlaneError with the number of a server
        that cannot be reached or does not answer in time; UsageError if the buffers were created
        for fewer servers, or without the areas for `how`.
        """
        self._check_areas(len(places), how)
        self._uncommitted = False
        numbers = list(places)
        rank = numbers.index(self._number)
        when, limits = (merge, attempt), (abort, self._timeout_s)
        port = Attempt(self._buffers, self._plane, self._mailbox, numbers, rank, when, limits)
        if len(numbers) == 1 and how.compressed:
            compressed.reduce_alone(port, own_weight)
        elif len(numbers) == 1:
            scale(self._buffers, 0, self._buffers.size, own_weight)
        elif how.robust == "median":
            compressed.reduce_median(port, own_weight, how)
        elif how.transfer == "bfloat16":
            compressed.reduce_bfloat16(port, own_weight)
        elif how.transfer == "top-k":
            compressed.reduce_top_k(port, own_weight)
        else:
            reduce_float32(port, own_weight, how)
        if len(numbers) > 1:  # else writes of an earlier attempt may have failed
            port.finish()
        self._uncommitted = how.compressed

    def commit(self) -> None:
        """The last sum counts: what was not sent is added to the next change of this server."""
        if self._uncommitted:
            self._buffers.residual[:] = self._buffers.kept
        self._uncommitted = False

    def _check_areas(self, servers: int, how: Reduction) -> None:
        buffers, needed = self._buffers, areas(self._buffers.size, servers, how)
        if (
            needed.staging > len(buffers.staging)
            or needed.outgoing > len(buffers.outgoing)
            or needed.residual > len(buffers.residual)
        ):
            raise UsageError(
                f"expected buffers for {servers} servers and {how}; got buffers for up to "
                f"{buffers.servers} servers: create them with the number of servers"
            )
