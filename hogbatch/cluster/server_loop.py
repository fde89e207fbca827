"""The loop of the coordinator of one server, which obeys the coordinator of all servers."""

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from hogbatch.cluster.supplied import SuppliedCoordinator
from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import MergeStep
from hogbatch.coordinator.loop import Loop
from hogbatch.wire.messages import ToCoordinator, ToWorker


class UpstreamAdapter(Protocol):
    """The coordinator of all servers, for which this process is a worker."""

    def receive(self) -> Iterator[ToWorker]:
        """Yield received messages, without waiting; the endpoint watches for them."""

    def send(self, message: ToCoordinator) -> None:
        """Send `message` without waiting."""

    def exchange(self, asked: MergeStep) -> ToCoordinator | None:
        """Do what `asked` asks for; return the answer, if there is one. May take long."""

    def interrupt_exchange(self) -> None:
        """End a call of `exchange` that is in progress on another thread, as it waits in vain."""


class UpstreamOrders:
    """The connection to the coordinator of all servers (UpstreamActions)."""

    def __init__(
        self, state: SuppliedCoordinator, upstream: UpstreamAdapter, background: BackgroundTasks
    ) -> None:
        self._state, self._upstream, self._background = state, upstream, background

    def events(self) -> Iterator[Event]:
        """Yield the events of the orders received since the last call."""
        for order in self._upstream.receive():
            yield partial(self._state.order, order)

    def answer(self, message: ToCoordinator) -> None:
        self._upstream.send(message)

    def exchange(self, asked: MergeStep) -> None:
        self._upstream.interrupt_exchange()
        self._background.exchanges.submit(self._exchange, asked)

    def _exchange(self, asked: MergeStep) -> Event:
        return partial(self._state.exchanged, asked, self._upstream.exchange(asked))


def server_loop(state: SuppliedCoordinator, adapters: Adapters, upstream: UpstreamAdapter) -> Loop:
    """The loop of the coordinator of one of several servers."""
    background = BackgroundTasks()
    orders = UpstreamOrders(state, upstream, background)
    return Loop(state, adapters, background, upstream=orders)
