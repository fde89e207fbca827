"""The servers of a run on a Ray cluster: placed by Ray, one on each of several machines.

Used by the process that calls Ray (:mod:`hogbatch.cluster.ray.process`).
"""

import logging
import os
import queue
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hogbatch.cluster.host import ENDS_WITHIN_S, ServerFailed, ServerHost
from hogbatch.cluster.planes.base import TIMEOUT_S
from hogbatch.cluster.ray.calls import unpacked
from hogbatch.cluster.servers import requested
from hogbatch.cluster.surveys import answer
from hogbatch.coordinator.interrupts import ENDING_SIGNALS
from hogbatch.errors import HogbatchError, UsageError
from hogbatch.store.segment import Segment

WATCH_S: Final = 1.0  # of a call that waits for the end of a server
ANSWERS_WITHIN_S: Final = 10.0  # after that; else the server counts as lost
PLACED_WITHIN_S: Final = 60.0
MODEL_WITHIN_S: Final = 120.0  # for a model to be copied
RETRY_S: Final = 1.0  # between two attempts to start an actor on a machine that is gone

REQUIRED: Final = "programs that connect need the token of the cluster"
OPEN: Final = (
    "every program that reaches it can run code as you; require a token (docs/cluster.md, Security)"
)

SILENCE_S: Final = 30.0  # without a call of the driver; then this server is of no use

# Calls of one group are made in order, on one thread, and do not wait for those of others.
GROUPS: Final = {"failures": 1, "introduce": 1, "memory": 1, "write": 2}


def _method(group: str) -> Callable[[Any], Any]:
    """Mark a method of the actor as one of a group of GROUPS."""
    return ray.method(concurrency_group=group)


class ServerActor:
    """See `ServerHost`, whose methods the driver calls through it."""

    def __init__(self) -> None:
        self._host: ServerHost | None = None
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._called = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, start: bytes, data: NDArray[np.uint8]) -> None:
        self._host = ServerHost(start, data, self._failures.put)

    @_method("failures")
    def failure(self, timeout_s: float) -> str | None:
        """Why the process has failed or ended; waits for that up to `timeout_s`, else None."""
        self._called = time.monotonic()
        with suppress(queue.Empty):
            return self._failures.get(timeout=timeout_s)
        return None

    @_method("introduce")
    def introduce(
        self, number: int, version: int, peers: Mapping[int, Any], message: bytes
    ) -> None:
        """See `ServerHost.connect`; `peers` are actors."""
        writes = {each: partial(_write, peer) for each, peer in peers.items()}
        self._hosted.connect(number, version, writes, message)

    @_method("write")
    def write(
        self, sender: int, version: int, target: int, array: NDArray[np.uint8], note: bytes
    ) -> str | None:
        """See `ServerHost.write`; called by the actors of other servers."""
        return self._hosted.write(sender, version, target, array, note)

    @_method("memory")
    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `ServerHost` that reads or writes its memory, or stops it."""
        return getattr(self._hosted, method)(*arguments)

    @property
    def _hosted(self) -> ServerHost:
        if self._host is None:
            raise HogbatchError("the process of this server was not started")
        return self._host

    def _watch(self) -> None:
        """End this actor, and with it its server, if the driver cannot be reached any more.

        The driver calls `failure` every second; without it, the others go on without this server.
        """
        while time.monotonic() - self._called < SILENCE_S:
            time.sleep(1.0)
        if self._host is not None:
            self._host.kill()
        os._exit(1)


def _write(
    peer: Any, sender: int, version: int, target: int, array: NDArray[np.uint8], note: bytes
) -> str | None:
    """Write to the server of another actor, through the object store."""
    try:
        written = peer.write.remote(sender, version, target, array, note)
        failure: str | None = ray.get(written, timeout=TIMEOUT_S)
    except RayError as error:
        return f"cannot be reached: {type(error).__name__}"
    return failure


Actor: Any = ray.remote(concurrency_groups=GROUPS, max_restarts=0)(ServerActor)  # type: ignore[call-overload]
Answer: Any = ray.remote(num_cpus=0)(answer)


class RayServer:
    """A server on the machine of a bundle of the placement group.

    It may have to wait until Ray has found another machine for the bundle of a lost one.
    """

    def __init__(self, key: str, number: int, begin: Any, cluster: "RayCluster") -> None:
        """`begin` are the arguments of the method `begin` of its actor."""
        self._key, self._number, self._begin, self._cluster = key, number, begin, cluster
        self.actor: Any = None  # once it has been started
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def introduce(
        self, number: int, version: int, peers: Mapping[int, str], message: bytes
    ) -> None:
        actors = {each: self._cluster.servers[key].actor for each, key in peers.items()}
        self.actor.introduce.remote(number, version, actors, message)

    def call(self, method: str, *arguments: Any, timeout_s: float = MODEL_WITHIN_S) -> Any:
        """Call a method of the ServerHost; OSError if the server is lost."""
        values = [unpacked(each) if isinstance(each, Segment) else each for each in arguments]
        try:
            return ray.get(self.actor.call.remote(method, *values), timeout=timeout_s)
        except RayError as error:
            raise OSError(f"its machine or its actor has failed ({type(error).__name__})") from None

    def stop(self) -> dict[str, bytes]:
        self._ended.set()
        files: dict[str, bytes] = self.call("stop", timeout_s=ENDS_WITHIN_S + ANSWERS_WITHIN_S)
        ray.kill(self.actor)
        return files

    def kill(self) -> None:
        self._ended.set()
        if self.actor is not None:
            ray.kill(self.actor)

    def _run(self) -> None:
        """Start the actor, then wait until it fails."""
        if not self._start():
            return
        while not self._ended.is_set():
            try:
                waiting = self.actor.failure.remote(WATCH_S)
                reason = ray.get(waiting, timeout=WATCH_S + ANSWERS_WITHIN_S)
            except GetTimeoutError:
                self._lost(f"no answer for {ANSWERS_WITHIN_S:.0f} s")
            except RayError as error:
                self._lost(f"its machine or its actor has failed ({type(error).__name__})")
            else:
                if reason is not None:
                    self._cluster.failed(self._key, reason)

    def _start(self) -> bool:
        """Start the actor; whether that succeeded. Its machine may be gone, or not exist yet."""
        while not self._ended.is_set():
            self.actor = self._cluster.actor(self._number)
            try:
                ray.get(self.actor.begin.remote(*self._begin))
                return True
            except RayTaskError as error:  # an exception of `begin`
                self._lost(f"it could not be started: {error.cause}")
            except RayActorError:
                time.sleep(RETRY_S)
            except RayError as error:
                self._lost(f"it could not be started: {type(error).__name__}")
        return False

    def _lost(self, reason: str) -> None:
        if not self._ended.is_set():
            self._cluster.failed(self._key, reason)
        self._ended.set()


class RayCluster:
    """Servers on different machines of a Ray cluster, each with the same workers."""

    def __init__(self, failed: ServerFailed) -> None:
        """`open` comes first."""
        self.failed = failed
        self.servers: dict[str, RayServer] = {}  # by key
        self._data: Any = None  # in Ray's object store

    def open(self, address: str, size: int, wanted: str) -> list[Any]:
        """Connect with the cluster, and reserve machines for `size` servers.

        Returns what the process that trains needs to know: lines to print, the address to listen
        at, and the workers of each server. UsageError if there is no such cluster, or if it has too
        few machines.
        """
        _connect(address)
        machines = _machines()
        if len(machines) < size:
            raise UsageError(
                f"--servers {size}: the Ray cluster has {len(machines)} machines with processors; "
                "give fewer servers, or add machines"
            )
        cpus, gpus = (min(each) for each in zip(*machines, strict=True))
        self._threads, self._gpus = requested(wanted, cpus, gpus)
        if self._threads > cpus or self._gpus > gpus:
            raise UsageError(
                f"--per-server {wanted}: the smallest machine of the Ray cluster has "
                f"{cpus} CPUs and {gpus} GPUs"
            )
        self._group = _place(size, {"CPU": self._threads, "GPU": self._gpus})
        for number in ENDING_SIGNALS:  # a job of Ray signals all processes that it stops
            signal.signal(number, signal.SIG_IGN)  # the process that trains ends this one
        numbers = range(self._gpus)  # as Ray makes them visible
        workers = ",".join([f"cpu:{self._threads}", *(f"gpu:{number}" for number in numbers)])
        token = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"  # Ray may have set it
        lines = [
            f"{size} servers of a Ray cluster, each with {workers}",
            f"Ray listens on all network interfaces: {REQUIRED if token else OPEN}",
        ]
        return [lines, ray.util.get_node_ip_address(), workers]  # type: ignore[no-untyped-call]

    def survey(self, *requests: bytes) -> dict[str, bytes]:
        answers = [
            Answer.options(scheduling_strategy=self._where(index)).remote(request)
            for index, request in enumerate(requests)
        ]
        try:
            surveys: list[bytes] = ray.get(answers)
        except RayTaskError as error:
            if isinstance(error.cause, HogbatchError):
                raise error.cause from None
            raise UsageError(f"a server could not read its files: {error.cause}") from None
        except RayError as error:
            lost = type(error).__name__
            raise UsageError(f"a server was lost while it read its files ({lost})") from None
        return {str(number): each for number, each in enumerate(surveys)}

    def begin(self, segment: Segment) -> None:
        """See `Cluster.begin`; `segment` has the rows."""
        with closing(segment):
            self._data = ray.put(segment.memory)

    def start(self, index: int, key: str, start: bytes) -> None:
        self.servers[key] = RayServer(key, index, (start, self._data), self)

    def actor(self, index: int) -> Any:
        """Create an actor on the machine of server `index`."""
        options = {"num_cpus": self._threads, "num_gpus": self._gpus}
        return Actor.options(scheduling_strategy=self._where(index), **options).remote()

    def _where(self, index: int) -> PlacementGroupSchedulingStrategy:
        """On the machine of server `index`."""
        return PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=index
        )

    def close(self) -> None:
        self._data = None
        remove_placement_group(self._group)
        ray.shutdown()


def _connect(address: str) -> None:
    """Connect with the cluster; UsageError if there is none."""
    try:
        if found := re.fullmatch(r"([^:/]+):(\d{1,5})", address):  # Ray would wait for a minute
            socket.create_connection((found[1], int(found[2])), ANSWERS_WITHIN_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"--cluster {address}: cannot connect with a Ray cluster ({first}); start one with "
            "'ray start --head', give its address, or set RAY_AUTH_MODE=token if it needs a token"
        ) from None


def _machines() -> list[tuple[int, int]]:
    """The numbers of CPUs and GPUs of each machine with processors that is alive."""
    nodes: list[Any] = ray.nodes()  # type: ignore[no-untyped-call]
    found = [each["Resources"] for each in nodes if each["Alive"]]
    machines = [(int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in found]
    return [(cpus, gpus) for cpus, gpus in machines if cpus > 0]


def _place(size: int, resources: Mapping[str, int]) -> PlacementGroup:
    """Reserve `resources` on `size` different machines; UsageError if they are in use."""
    bundle = {name: float(count) for name, count in resources.items() if count}
    group: PlacementGroup = placement_group([bundle] * size, strategy="STRICT_SPREAD")
    if not group.wait(PLACED_WITHIN_S):
        remove_placement_group(group)
        wanted = " and ".join(f"{count} {name}s" for name, count in resources.items() if count)
        raise UsageError(
            f"--servers {size}: no {size} machines of the Ray cluster had {wanted} to spare within "
            f"{PLACED_WITHIN_S:.0f} s; give fewer, or end other jobs"
        )
    return group
