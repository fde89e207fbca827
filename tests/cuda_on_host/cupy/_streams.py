"""Streams that run their work as late as possible.

Queued work runs only when the stream, or a later event in it, is waited for. So a read on the host
or in another stream without synchronization sees the old values. Work captured in a graph does not
run until the graph is launched.
"""

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from cupy._device import LOCK, CUDARuntimeError, capturing_threads, refuse_in_capture
from cupy._memory import Region, pool

MAX_WAITING = 1024  # operations in a stream, about as many as a GPU's queue takes


class Operation(NamedTuple):
    """`run` accesses `regions` by address; a queued operation keeps them alive until it has run."""

    run: Callable[[], object]
    regions: tuple[Region, ...]


class Mark:
    """A point in a stream."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self.seconds: float | None = None  # when it was passed

    def pass_by(self) -> None:
        self.seconds = time.perf_counter()

    def wait(self) -> None:
        with LOCK:
            while self.seconds is None and self.stream.step():
                pass


class Capture:
    """A capture: the operations on the stream where it began, and on streams that joined it."""

    def __init__(self, origin: "Stream") -> None:
        self.origin = origin
        self.thread = threading.get_ident()
        self.operations: list[Operation] = []
        self.members = {origin}
        self.unjoined: set[Stream] = set()  # members with work that the origin does not wait for
        capturing_threads.append(self.thread)

    def add(self, stream: "Stream", operation: Operation) -> None:
        self.operations.append(operation)
        if stream is not self.origin:
            self.unjoined.add(stream)

    def join(self, stream: "Stream", other: "Stream") -> None:
        """Add `stream`, which waits for the member `other`."""
        stream.capture = self
        self.members.add(stream)
        self.unjoined.add(stream)
        self.unjoined -= {self.origin} if stream is not self.origin else {self.origin, other}

    def end(self) -> None:
        capturing_threads.remove(self.thread)
        for stream in self.members:
            stream.capture = None
        if self.unjoined:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined: a stream was not joined")


class Stream:
    null: "Stream"

    def __init__(self, *, non_blocking: bool = False, priority: int = 0) -> None:
        self.ptr = next(_addresses)
        self.device_id = 0
        self.is_non_blocking = non_blocking
        self.capture: Capture | None = None
        self._queue: deque[Operation] = deque()
        _streams[self.ptr] = self

    def enqueue(self, run: Callable[[], object], regions: tuple[Region, ...] = ()) -> None:
        """Queue `run`, to be called after everything queued before."""
        with LOCK:
            if self.capture is not None:
                self.capture.add(self, Operation(run, regions))
                return
            for other in self._ordered_before():
                other.drain()
            self._queue.append(Operation(run, regions))
            _busy.add(self)
            while len(self._queue) > MAX_WAITING:
                self.step()

    def _ordered_before(self) -> list["Stream"]:
        """The streams to wait for: the null stream and blocking streams wait for each other."""
        if self is not Stream.null:
            return [] if self.is_non_blocking else [Stream.null]
        others = [each for each in list(_streams.values()) if not each.is_non_blocking]
        if any(each.capture for each in others):
            raise CUDARuntimeError("cudaErrorStreamCaptureImplicit: the null stream would wait")
        return [each for each in others if each is not self]

    def step(self) -> bool:
        """Run the next operation; return False if there is none. A failure clears the queue."""
        with LOCK:
            if not self._queue:
                return False
            operation = self._queue.popleft()
            try:
                operation.run()
            except BaseException:
                self._queue.clear()
                raise
            finally:
                if not self._queue:
                    _busy.discard(self)
            return True

    def drain(self) -> None:
        while self.step():
            pass

    def synchronize(self) -> None:
        refuse_in_capture("waiting for a stream")
        self.drain()

    def record(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        other = event.captured_on
        if other is not None and other.capture is not None:
            if self.capture not in (None, other.capture):
                raise CUDARuntimeError("cudaErrorStreamCaptureMerge: two captures would be one")
            other.capture.join(self, other)
        elif self.capture is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureIsolation: an event of no capture")
        elif event.mark is not None:
            self.enqueue(event.mark.wait)

    def begin_capture(self, mode: int | None = None) -> None:
        if self is Stream.null:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.capture is not None:
            raise CUDARuntimeError("cudaErrorIllegalState: the stream is capturing already")
        self.capture = Capture(self)

    def end_capture(self) -> "Graph":
        capture = self.capture
        if capture is None or capture.origin is not self:
            raise CUDARuntimeError("cudaErrorIllegalState: no capture began on this stream")
        if capture.thread != threading.get_ident():
            raise CUDARuntimeError("cudaErrorStreamCaptureWrongThread: another thread began it")
        capture.end()
        return Graph(capture.operations)

    def use(self) -> "Stream":
        _local.current = self
        return self


class Event:
    """An event, which refers to the stream in which it was recorded last."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.timed = not disable_timing
        self.mark: Mark | None = None
        self.captured_on: Stream | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        self.mark, self.captured_on = None, None
        if stream.capture is not None:
            self.captured_on = stream
            return
        self.mark = Mark(stream)
        stream.enqueue(self.mark.pass_by)

    def synchronize(self) -> None:
        refuse_in_capture("waiting for an event")
        if self.captured_on is not None:
            raise CUDARuntimeError("cudaErrorCapturedEvent: the event is part of a graph")
        if self.mark is not None:
            self.mark.wait()


class Graph:
    """Captured work. Like a CUDA graph it does not keep memory alive; it detects freed memory."""

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = [
            (operation.run, tuple(map(weakref.ref, operation.regions))) for operation in operations
        ]

    def launch(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        for run, references in self._operations:
            regions = tuple(reference() for reference in references)
            if None in regions:
                raise CUDARuntimeError("cudaErrorIllegalAddress: the graph uses freed memory")
            stream.enqueue(run, regions)

    def debug_dot_str(self, flags: int = 0) -> str:
        """The graph in the DOT language: a node and an edge for each operation, one per line."""
        nodes = [f'"graph_1_node_{n}"' for n in range(len(self._operations))]
        edges = [f"{one} -> {other};" for one, other in itertools.pairwise(nodes)]
        shaped = [f'{node}[style="bold" shape="octagon"];' for node in nodes]
        return "\n".join(["digraph dot {", *shaped, *edges, "}"])


def get_current_stream(device_id: int = -1) -> Stream:
    """The current stream of the calling thread."""
    return getattr(_local, "current", Stream.null)


def stream_at(ptr: int) -> Stream:
    """The stream with this `ptr`."""
    with suppress(KeyError):
        return _streams[ptr]
    raise CUDARuntimeError(f"cudaErrorInvalidResourceHandle: {ptr:#x} is not a stream")


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds."""
    if not (start.timed and end.timed) or start.mark is None or end.mark is None:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: not recorded, or without timing")
    if start.mark.seconds is None or end.mark.seconds is None:
        raise CUDARuntimeError("cudaErrorNotReady: device not ready")
    return (end.mark.seconds - start.mark.seconds) * 1000


def synchronize_device() -> None:
    """Wait for all streams."""
    refuse_in_capture("waiting for the device")
    _finish_all()


def _finish_all() -> None:
    for stream in list(_busy):
        stream.drain()


_local: Any = threading.local()
_addresses = itertools.count(0x100000, 0x100)
_streams: "weakref.WeakValueDictionary[int, Stream]" = weakref.WeakValueDictionary()
_busy: set[Stream] = set()  # keeps them alive
Stream.null = Stream()
del _streams[Stream.null.ptr]
Stream.null.ptr = 0
_streams[0] = Stream.null
pool.finish_all = _finish_all
