"""A plane of NIXL: one-sided writes through UCX, over shared memory, RDMA or TCP.

Deregistering memory does not prevent earlier servers from writing to it, so
:meth:`NixlPlane.connect` makes the addresses of the earlier membership inaccessible, and maps the
buffers at new ones, with a new agent (docs/cluster.md, "Transfers between servers").

UCX does not watch its connections here, and NIXL has no thread for progress, which would spin:
`finish` and `notes` make progress. So a server can write to another one only while that one is
writing or asks for notes, at least until they are connected. A server that has died is noticed by
writes that fail, or by the timeout. One thread at a time may use a plane.
"""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.planes.base import TIMEOUT_S, PlaneError, pauses_between_polls
from hogbatch.store.pages import make_inaccessible, map_shared

BACKEND: Final = "UCX"
INSTALL: Final = "pip install --no-deps nixl nixl-cu12"
OPTIONS: Final = {"ucx_error_handling_mode": "none"}  # else notes use TCP, see docs/cluster.md
# Both libraries print their errors to stdout or stderr, in the middle of our output. They reach
# us as return values too.
QUIET: Final = {"NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "fatal"}

_inaccessible: Final = list[NDArray[np.uint8]]()  # so that their addresses are not used again


class _Address(msgspec.Struct, frozen=True, array_like=True):
    """The data that others need to write to a window."""

    metadata: bytes  # of the agent
    start: int  # address of the buffers
    size: int  # bytes


class _Started(NamedTuple):
    """A write to a server that has not ended."""

    to: int
    transfer: Any  # NIXL's handle
    deadline: float


def unavailable() -> str | None:
    """Why NIXL cannot be used here, in a sentence; None if it can. Does not import PyTorch."""
    if find_spec("nixl") is None:
        return f"NIXL is not installed: {INSTALL}"
    try:
        nixl = _load()
        # an agent without backends, which takes less than a millisecond
        agent = nixl.nixl_agent("hogbatch", nixl.nixl_agent_config(backends=[]))
        plugins = agent.get_plugin_list()
    except (ImportError, OSError, RuntimeError) as error:
        return f"NIXL cannot be loaded ({error}): {INSTALL}"
    return None if BACKEND in plugins else f"NIXL has no plugin {BACKEND}; it has {plugins}"


class NixlPlane:
    """Registers the buffers of one server, and writes to those of others."""

    name = "NIXL (UCX)"
    timeout_s = TIMEOUT_S  # how long a write may take

    def __init__(self, buffers: ExchangeBuffers) -> None:
        """ImportError if NIXL is not installed."""
        self._buffers = buffers
        self._errors = _errors()
        self._present: _NixlWindow | None = None
        self._next: _NixlWindow | None = None
        self._others = dict[int, tuple[str, _Address]]()  # with the names of their agents
        self._started = list[_Started]()

    @property
    def address(self) -> bytes:
        """See `base.Plane`: in msgpack, the agent's metadata, and where the buffers are."""
        if self._next is None:
            self._next = _NixlWindow(self._buffers)
        return self._next.address

    def connect(self, others: Mapping[int, bytes]) -> None:
        for each in list(self._started):
            self._forget(each)
        if self._present:
            self._present.close()
        self._present = self._next or _NixlWindow(self._buffers)
        self._next, self._others = None, {}
        for number, encoded in others.items():
            address = msgspec.msgpack.decode(encoded, type=_Address)
            try:
                agent = self._present.agent.add_remote_agent(address.metadata)
            except self._errors as error:
                raise PlaneError(number, f"cannot be reached by NIXL ({error})") from error
            name = agent.decode() if isinstance(agent, bytes) else agent
            self._others[number] = name, address

    def start(self, to: int, source: tuple[int, int], target: int, note: bytes) -> None:
        if to not in self._others or self._present is None:
            raise PlaneError(to, "is not connected")
        name, peer = self._others[to]
        start, stop = source
        if not 0 <= target <= target + stop - start <= peer.size:
            raise PlaneError(to, f"has {peer.size} bytes of memory; got [{target}, ...) to write")
        agent = self._present.agent
        try:
            if start == stop:
                agent.send_notif(name, note, BACKEND)
                return
            transfer = agent.initialize_xfer(
                "WRITE",
                agent.get_xfer_descs([(self._present.start + start, stop - start, 0)], "DRAM"),
                agent.get_xfer_descs([(peer.start + target, stop - start, 0)], "DRAM"),
                name,
                note,
            )
            self._started.append(_Started(to, transfer, time.monotonic() + self.timeout_s))
            agent.transfer(transfer)  # an error shows when its state is asked for
        except self._errors as error:
            raise PlaneError(to, f"cannot be written to by NIXL ({error})") from error

    def finish(self) -> None:
        for pause in pauses_between_polls():
            self._progress()
            if not self._started:
                return
            time.sleep(pause)

    def _progress(self) -> None:
        """Look which writes have ended. NIXL sends the note of a write only now."""
        for each in list(self._started):
            assert self._present
            try:
                state = self._present.agent.check_xfer_state(each.transfer)
            except self._errors as error:
                self._forget(each)
                raise PlaneError(each.to, f"cannot be written to by NIXL ({error})") from error
            if state == "PROC" and time.monotonic() < each.deadline:
                continue
            self._forget(each)
            if state == "PROC":
                raise PlaneError(each.to, f"did not accept a write within {self.timeout_s:g} s")
            if state != "DONE":
                raise PlaneError(each.to, "cannot be written to by NIXL")

    def _forget(self, write: _Started) -> None:
        self._started.remove(write)
        with suppress(*self._errors):  # if NIXL cannot, it does so at the end of the agent
            write.transfer.release()

    def notes(self) -> Iterator[tuple[int, bytes]]:
        if self._present is None:
            return
        self._progress()
        numbers = {agent: number for number, (agent, _) in self._others.items()}
        for agent, notes in self._present.agent.get_new_notifs().items():
            name = agent.decode() if isinstance(agent, bytes) else agent
            if name in numbers:
                yield from ((numbers[name], note) for note in notes)

    def close(self) -> None:
        for each in list(self._started):
            self._forget(each)
        for window in (self._present, self._next):
            if window:
                window.close()
        self._present, self._next, self._others = None, None, {}


class _NixlWindow:
    """A second mapping of the buffers and an agent to which it is registered, until closed."""

    def __init__(self, buffers: ExchangeBuffers) -> None:
        nixl = _load()
        self.memory = map_shared(buffers.segment.fd, buffers.memory.size, writable=True)
        self.start = self.memory.ctypes.data
        config = nixl.nixl_agent_config(backends=[], enable_prog_thread=False)
        self.agent = nixl.nixl_agent(f"hogbatch-{os.getpid()}-{secrets.token_hex(8)}", config)
        self.agent.create_backend(BACKEND, OPTIONS)
        regions = [(self.start, self.memory.size, 0, "")]
        self._registered = self.agent.register_memory(regions, "DRAM", [BACKEND])
        self._errors = _errors()
        self.address = msgspec.msgpack.encode(
            _Address(self.agent.get_agent_metadata(), self.start, self.memory.size)
        )

    def close(self) -> None:
        """Nothing can be written to the buffers through this window any more."""
        make_inaccessible(self.memory)
        _inaccessible.append(self.memory)
        with suppress(*self._errors):  # UCX may notice that the addresses are inaccessible
            self.agent.deregister_memory(self._registered)
        del self.agent  # ends its connections


def _load() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    return import_module("nixl")


def _errors() -> tuple[type[Exception], ...]:
    """The exceptions of NIXL, which have no base class of their own."""
    return tuple(
        each
        for each in vars(_load()).values()
        if isinstance(each, type) and issubclass(each, Exception)
    )
