"""The connection of a server with the coordinator of all servers, for which it is a worker."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Final, TypeVar

from msgspec import structs

from hogbatch.cluster.divided.reading import ServerRows
from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.model_merges import ModelMerges
from hogbatch.cluster.start import ServerStart
from hogbatch.cluster.supplied import BEAT_S, SuppliedCoordinator
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import Actions, Answer, MergeStep
from hogbatch.errors import ProtocolError
from hogbatch.version import version
from hogbatch.wire.codec import decode_to_worker
from hogbatch.wire.messages import (
    Done,
    Heartbeat,
    Hello,
    Lease,
    Refused,
    Stop,
    ToWorker,
    Welcome,
)
from hogbatch.wire.sockets import Dealer

T = TypeVar("T")

ANSWER_WITHIN_S: Final = 30.0  # of the coordinator of all servers


def join_run(dealer: Dealer, start: ServerStart, requests: tuple[WorkerRequest, ...]) -> Welcome:
    """Join the run as a worker; ProtocolError if it is refused, or if nobody answers."""
    threads = sum(request.threads for request in requests)
    dealer.send(
        Hello(
            device="server",
            name=f"{socket.gethostname()} ({start.workers})",
            threads=max(1, threads),
            pid=os.getpid(),
            package=version(),
            fingerprint=start.fingerprint,
            parts=start.parts or (),
        )
    )
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while (answer := dealer.receive()) is None:
        if (rest := deadline - time.monotonic()) <= 0.0:
            raise ProtocolError(
                f"the coordinator of all servers at {start.upstream.control} has not answered "
                f"within {ANSWER_WITHIN_S:.0f} s: allow TCP connections between all machines"
            )
        dealer.wait(rest)
    match answer:
        case Welcome() as welcome:
            return welcome
        case Refused(reason):
            raise ProtocolError(f"the run has refused this server: {reason}")
        case other:
            raise ProtocolError(f"expected a Welcome; got {type(other).__name__}")


def while_alive(dealer: Dealer, call: Callable[[], T]) -> T:
    """Call `call`, which may take long, and tell the coordinator that this server is alive."""
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(call)
        while not wait([called], BEAT_S).done:
            dealer.send(Heartbeat())
        return called.result()


class Upstream:
    """The coordinator of all servers, as the loop of this server's coordinator sees it."""

    def __init__(
        self,
        state: SuppliedCoordinator,
        background: BackgroundTasks,
        dealer: Dealer,
        frames: FrameSocket,
        merges: ModelMerges,
        own: ServerRows | None,
    ) -> None:
        """`dealer` is connected with the coordinator, `frames` with the process that started us.

        `own` are the rows of this server; None: it has all.
        """
        self._state, self._background = state, background
        self._dealer, self._frames, self._merges, self._own = dealer, frames, merges, own

    def events(self) -> Iterator[Event]:
        """Yield the events of the orders received since the last call."""
        for order in self._receive():
            yield partial(self._state.order, order)

    def _receive(self) -> Iterator[ToWorker]:
        yield from map(decode_to_worker, self._frames.frames())
        if self._frames.ended:
            yield Stop()
        while (message := self._dealer.receive()) is not None:
            own = self._own
            yield message if own is None or not isinstance(message, Lease) else own.local(message)

    @property
    def actions(self) -> Actions:
        """The actions of the commands that only the coordinator of a server gives."""
        return {Answer: self._answer, MergeStep: self._exchange}

    def _answer(self, command: Answer) -> None:
        message = command.message
        if self._own is not None and isinstance(message, Done):
            message = structs.replace(message, skipped_row=0)  # its number is not that in all rows
        self._dealer.send(message)

    def _exchange(self, step: MergeStep) -> None:
        self._merges.abort()
        self._background.exchanges.submit(self._carry_out, step)

    def _carry_out(self, step: MergeStep) -> Event:
        return partial(self._state.exchanged, step, self._merges.carry_out(step))
