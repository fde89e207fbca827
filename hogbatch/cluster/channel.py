"""The servers of a run as the workers of its coordinator: messages, restarts, models."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.host import ModelArrays
from hogbatch.cluster.servers import Cluster, ServerHandle
from hogbatch.coordinator.adapters import ProcessAdapter
from hogbatch.errors import HogbatchError, UsageError
from hogbatch.events.event import WorkerGivenUp, WorkerRestarted
from hogbatch.kernels.contract import NO_SCORES, RowScores
from hogbatch.machine.pollable_queue import PollableQueue
from hogbatch.run.launch.restarts import Restarts
from hogbatch.wire.channel import CoordinatorChannel
from hogbatch.wire.codec import encode
from hogbatch.wire.messages import (
    Done,
    Failed,
    Goodbye,
    Lease,
    Loaded,
    Servers,
    ToCoordinator,
    ToWorker,
    Welcome,
)
from hogbatch.wire.sockets import new_identity

T = TypeVar("T")

LOST: Final = (HogbatchError, OSError)
MAX_REASON: Final = 1000  # characters of a reason that are reported


@dataclass(slots=True)
class ServerPlace:
    """A place for a server, and the server that has it."""

    number: int
    name: str  # of its last server among the workers
    handle: ServerHandle | None = None
    restarts: Restarts = field(default_factory=Restarts)
    worked: bool = False  # its server has trained since it was started
    ended: bool = False  # its server has ended; `start_due` decides what follows
    evaluates: dict[int, Lease] = field(default_factory=dict)  # by number, if scores are kept


class ServersChannel(ProcessAdapter):
    """The coordinator's channel to all servers, which it starts, and starts again if they fail.

    It is a CoordinatorChannel, too. Used by the thread of the coordinator's loop,
    except `failed`, `_read_scores`, `read_model`, `read_mean` and `handle`.
    """

    def __init__(
        self,
        cluster: Cluster,
        router: CoordinatorChannel,
        start: Callable[[int, str], bytes],
        scores: RowScores = NO_SCORES,
    ) -> None:
        """`start` returns the encoded ServerStart of the server at a place, given its key.

        `router` has the connections with all servers; it is not closed here. `scores` get those of
        the rows that servers evaluate.
        """
        self._cluster, self._router, self._start = cluster, router, start
        self._reported = PollableQueue[tuple[str, ToCoordinator]]()
        self._scores, self._reader = scores.stored, ThreadPoolExecutor(1)
        router.watch(self._reported.fd)
        self._places = [ServerPlace(number, f"server {number}") for number in range(cluster.size)]
        self._by_key: dict[str, ServerPlace] = {}
        self._numbers: dict[int, str] = {}  # as in Welcome → key
        self._loaded: list[str] = []  # keys of the servers that got the model, also of ended ones

    def begin(self) -> None:
        for place in self._places:
            self._start_server(place)

    def failed(self, key: str, reason: str) -> None:
        """Server `key` has failed or ended; may be called on any thread."""
        self._reported.put((key, Failed(reason[:MAX_REASON])))

    # The channel ------------------------------------------------------------------------------

    def watch(self, fd: int) -> None:
        self._router.watch(fd)

    def unwatch(self, fd: int) -> None:
        self._router.unwatch(fd)

    def wait(self, timeout_s: float) -> list[int]:
        return self._router.wait(timeout_s)

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        for key, message in chain(self._router.receive(), self._reported.taken()):
            if (place := self._by_key.get(key)) is None:
                continue  # it was killed
            if isinstance(message, Done) and (server := place.handle):
                place.worked = True
                if lease := place.evaluates.pop(message.lease, None):
                    self._reader.submit(self._read_scores, server, lease, message)
                    continue
            if isinstance(message, Loaded) and key not in self._loaded:
                self._loaded.append(key)
            if isinstance(message, Failed | Goodbye):
                self._forget(key)
            yield key, message

    def _read_scores(self, server: ServerHandle, lease: Lease, done: Done) -> None:
        """Copy the scores of the rows of `lease`, which is done only then."""
        try:
            rows = lease.start, lease.stop
            self._scores[slice(*rows)] = server.read_scores(*rows)
        except LOST as error:
            self.failed(server.key, f"its scores could not be read: {error}")
        else:
            self._reported.put((server.key, done))

    def send(self, worker: str, message: ToWorker) -> bool:
        place = self._by_key.get(worker)
        if place is None or place.handle is None:
            return False
        if isinstance(message, Lease) and message.task != "train" and self._scores.size:
            place.evaluates[message.number] = message
        if isinstance(message, Welcome):
            self._numbers[message.worker], place.name = worker, message.name
        if isinstance(message, Servers):
            peers = {number: self.handle(self._numbers[number]) for number in message.numbers}
            own = next(number for number, each in peers.items() if each is place.handle)
            others = {number: each for number, each in peers.items() if each and number != own}
            place.handle.introduce(own, message.version, others, encode(message))
        else:
            self._router.send(worker, message)
        return True  # that it cannot be reached is reported by its handle

    def close(self) -> None:
        for key in list(self._by_key):
            self.kill(key)
        self._reader.shutdown(wait=False)
        self._router.unwatch(self._reported.fd)
        self._reported.close()

    # Servers that end -------------------------------------------------------------------------

    def revoke(self, worker: int) -> None:
        """End the server with this number: it takes no part in merges any more."""
        if (key := self._numbers.pop(worker, None)) is not None:
            self.kill(key)

    def kill(self, key: str) -> None:
        """End server `key` now."""
        if self.handle(key) is not None:
            self._forget(key)

    def _forget(self, key: str) -> None:
        """End server `key`, whose place gets another one."""
        place = self._by_key.pop(key)
        if place.handle is not None:
            with suppress(*LOST):
                place.handle.kill()
        place.handle, place.ended = None, True
        place.evaluates.clear()

    def start_due(self, now: float) -> Iterator[WorkerRestarted | WorkerGivenUp]:
        """Start servers again, some time after they have ended."""
        if self._cluster.lost:
            return
        for place in self._places:
            if place.ended:
                place.restarts.died(now, place.worked)
                place.worked = place.ended = False
                if place.restarts.due_at is None:
                    yield WorkerGivenUp(place.name, str(place.restarts))
            elif place.handle is None and place.restarts.is_due(now):
                place.restarts.start()
                self._start_server(place)
                yield WorkerRestarted(place.name, 0, *place.restarts.counted)

    def all_ended(self) -> str | None:
        if self._cluster.lost:
            return self._cluster.lost
        alive = (place.handle or place.ended or place.restarts.due_at for place in self._places)
        return None if any(alive) else "no server can be started any more"

    def _start_server(self, place: ServerPlace) -> None:
        key = new_identity().hex()
        self._by_key[key] = place
        try:
            start = self._start(place.number, key)
            place.handle = self._cluster.start(place.number, key, start)
        except UsageError:
            raise
        except LOST as error:
            self.failed(key, f"it could not be started: {error}")

    # Models -----------------------------------------------------------------------------------

    @property
    def gave_model(self) -> bool:
        """Whether a server has ever been given the model."""
        return bool(self._loaded)

    @property
    def loaded(self) -> list[ServerHandle]:
        handles = (self.handle(key) for key in list(self._loaded))
        return [handle for handle in handles if handle is not None]

    def handle(self, key: str) -> ServerHandle | None:
        """Server `key`; None if it has ended."""
        place = self._by_key.get(key)
        return place.handle if place else None

    def read_model(self) -> ModelArrays | None:
        """The model of a server that has it; None if none has."""
        return self._read(lambda handle: handle.read_model())

    def read_mean(self) -> NDArray[np.float32] | None:
        """A copy of the moving mean of a server that has the model; None if none has."""
        mean = self._read(lambda handle: handle.read_mean())
        return None if mean is None else np.array(mean)

    def _read(self, read: Callable[[ServerHandle], T]) -> T | None:
        for handle in self.loaded:
            try:
                return read(handle)
            except LOST:
                continue
        return None

    # End --------------------------------------------------------------------------------------

    def stop(self) -> Iterator[tuple[str, str, dict[str, bytes]]]:
        """Wait for the ends of servers that have joined, one after the other.

        Yields the key and the name of each, and the contents of its files by name.
        """
        for key, place in list(self._by_key.items()):
            if place.handle is not None and key in self._numbers.values():
                with suppress(*LOST):
                    yield key, place.name, place.handle.stop()
