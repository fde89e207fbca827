"""A server's part of a merge: copying its change, summing it with others, applying the sum.

The workers of the server train on meanwhile, without locks, as when a GPU merges: the sum is added
to the parameters, and the server's own change, which they contain already, is subtracted.
"""

import math
import struct
import threading
import time
from collections.abc import Sequence

import numpy as np

from hogbatch.cluster.buffers import FLOAT, ExchangeBuffers
from hogbatch.cluster.decisions.ring import ring_steps
from hogbatch.cluster.planes.base import TIMEOUT_S, Plane, PlaneError, pauses_between_polls
from hogbatch.coordinator.commands import MergeStep
from hogbatch.kernels.contract import Floats
from hogbatch.store.average import MovingMean
from hogbatch.store.merge import CHUNK, delta
from hogbatch.store.model import SharedModel
from hogbatch.wire import messages

_NOTE = struct.Struct("<QII")  # of a message: merge, attempt, step


class ChangeExchange:
    """Sums the changes in the buffers of all servers of a merge.

    One thread at a time. The plane must be connected with the other servers of a merge before it,
    and again before it is repeated: a slow server may still write for the earlier attempt.
    """

    timeout_s = TIMEOUT_S  # how long a server waits for a message

    def __init__(self, buffers: ExchangeBuffers, plane: Plane, number: int) -> None:
        """`number` is that of this server."""
        self._buffers, self._plane, self._number = buffers, plane, number
        # (merge, attempt, step, sender) of messages that are still waited for, also of later
        # attempts, which this server has not begun yet
        self._arrived = set[tuple[int, ...]]()

    def reduce(self, message: messages.Reduce, abort: threading.Event) -> None:
        """Leave the sum of all servers' changes, each times its weight, in the buffers' `sum`.

        `message` is the same on all servers that take part. They may begin at different times, but
        only after all have ended the merge before. All get the same bits. The change stays as it
        is, so that the merge can be repeated with a larger number of the attempt, after an error or
        by fewer servers.

        PlaneError if `abort` is set before the end, or with the number of a server that cannot be
        reached or does not answer in time.
        """
        attempt = message.merge, message.attempt
        self._arrived = {each for each in self._arrived if each[:2] >= attempt}
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
        """Wait for a message; PlaneError if it does not come in time, or before `abort` is set."""
        deadline = time.monotonic() + self.timeout_s
        for pause in pauses_between_polls():
            if abort.is_set():
                raise PlaneError(awaited[-1], "was not waited for: the merge was aborted")
            for sender, note in self._plane.notes():
                if len(note) == _NOTE.size:
                    self._arrived.add((*_NOTE.unpack(note), sender))
            if awaited in self._arrived:
                self._arrived.remove(awaited)
                return
            if time.monotonic() > deadline:
                raise PlaneError(awaited[-1], f"did not answer within {self.timeout_s:g} s")
            time.sleep(pause)


class ModelMerges:
    """The merges of one server, whose number is `number`; used by one thread, except `abort`."""

    def __init__(
        self,
        model: SharedModel,
        tensors: Sequence[slice],
        buffers: ExchangeBuffers,
        plane: Plane,
        number: int,
    ) -> None:
        """`tensors` are the places of the network's tensors in the parameters."""
        self.mean = MovingMean(model, sampled=buffers.merged)
        self._model, self._buffers, self._plane, self._number = model, buffers, plane, number
        self._chunks = [_chunks(each) for each in tensors]
        self._exchange = ChangeExchange(buffers, plane, number)
        self._abort = threading.Event()
        self._arrived = self._begun = 0  # messages
        self._lock = threading.Lock()  # of these three
        self._known: frozenset[int] = frozenset()  # servers
        self._began = self._cpu_began = 0.0  # the merge; seconds, CPU seconds
        self._updates = self._rows = 0  # at the last copy
        np.copyto(buffers.merged, model.params)
        for area in (buffers.change, buffers.sum):
            area.fill(0.0)  # the kernel allocates the memory now, not in the first merge

    def abort(self) -> None:
        """Another message has arrived: end a sum that is in progress, or waits for its turn."""
        with self._lock:
            self._arrived += 1
            self._abort.set()

    def carry_out(self, step: MergeStep) -> messages.FromServer | None:
        """Do what the coordinator of all servers asks for; return the answer, if there is one.

        To be called once after each call of :meth:`abort`.
        """
        with self._lock:
            self._begun += 1
            if self._begun >= self._arrived:  # no other message waits
                self._abort.clear()
        match step.message:
            case messages.Servers():
                return self._connect(step.message)
            case messages.Collect(merge):
                return self._collect(merge, step)
            case messages.Reduce():
                return self._reduce(step.message, step)
            case messages.Apply():
                return self._apply(step.message)
            case messages.UseModel():
                return self._load()
            case messages.UseMean(used):
                self._buffers.mean_is_shown[0] = 0
                self.mean.show(used)
                self._buffers.mean_is_shown[0] = used
                return None

    def _connect(self, servers: messages.Servers) -> messages.Connected:
        """Connect with the others. A new one has no samples of the mean, so all begin again."""
        numbers = frozenset(servers.numbers)
        if numbers - self._known:
            self.mean.reset()
        self._known = numbers
        pairs = zip(servers.numbers, servers.addresses, strict=True)
        try:
            self._plane.connect({number: each for number, each in pairs if number != self._number})
        except PlaneError as error:
            return messages.Connected(servers.version, self._plane.address, error.server)
        return messages.Connected(servers.version, self._plane.address)

    def _collect(self, merge: int, step: MergeStep) -> messages.Collected:
        self._began, self._cpu_began = time.perf_counter(), time.thread_time()
        change, merged, params = self._buffers.change, self._buffers.merged, self._model.params
        squares = []
        with np.errstate(over="ignore", invalid="ignore"):
            for chunks in self._chunks:
                square = 0.0
                for c in chunks:
                    np.subtract(params[c], merged[c], out=change[c])
                    square += float(np.dot(change[c], change[c]))
                squares.append(square)
        updates, rows = step.updates - self._updates, step.rows - self._rows
        self._updates, self._rows = step.updates, step.rows
        finite = math.isfinite(sum(squares))
        batch_size, sums = max(1, rows // max(1, updates)), tuple(squares) if finite else ()
        return messages.Collected(merge, step.leases, max(0, updates), batch_size, finite, sums)

    def _reduce(self, message: messages.Reduce, step: MergeStep) -> messages.Reduced | None:
        collected = self._collect(message.merge, step) if message.collect else None
        attempt = message.merge, message.attempt
        if collected is not None and not collected.finite:
            return messages.Reduced(*attempt, collected=collected)
        try:
            self._exchange.reduce(message, self._abort)
        except PlaneError as error:
            return None if self._abort.is_set() else messages.Reduced(*attempt, error.server)
        squares = (sum(_square(self._buffers.sum[c]) for c in each) for each in self._chunks)
        return messages.Reduced(*attempt, squares=tuple(squares), collected=collected)

    def _apply(self, message: messages.Apply) -> messages.Applied:
        buffers, params = self._buffers, self._model.params
        scales = message.scales or (1.0,) * len(self._chunks)
        for chunks, scale in zip(self._chunks, scales, strict=True):
            for c in chunks:
                step = buffers.sum[c] * np.float32(scale)
                params[c] += step - buffers.change[c]
                buffers.merged[c] += step
        self._model.merges[0] += 1
        if message.sample:
            self.mean.sample()
        seconds = time.perf_counter() - self._began
        return messages.Applied(message.merge, seconds, time.thread_time() - self._cpu_began)

    def _load(self) -> messages.Loaded:
        """Begin with the model that was written to the shared memory."""
        changed = not np.array_equal(self._buffers.merged, self._model.params)
        np.copyto(self._buffers.merged, self._model.params)
        self.mean.reset()
        return messages.Loaded(changed)


def _square(values: Floats) -> float:
    """Their squared norm, also if it is too large for float32, as that of a sum may be."""
    with np.errstate(over="ignore"):
        square = float(np.dot(values, values))
    return square if math.isfinite(square) else float(np.square(values, dtype=np.float64).sum())


def _chunks(tensor: slice) -> list[slice]:
    starts = range(tensor.start, tensor.stop, CHUNK)
    return [slice(start, min(start + CHUNK, tensor.stop)) for start in starts]
