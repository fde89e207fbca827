"""A GPU worker's replica of the parameters, and its exchange with the shared parameters.

At the end of each interval (the batches between two merges) the training thread calls
    rejoin    replaces the base of the replica by the parameters fetched last,
    take      takes the change made in the interval.
The next interval then starts immediately, while the exchange thread (:mod:`workers.exchange`) calls
    merge     adds the change to the shared parameters,
    fetch     pulls the shared parameters for the next `rejoin`.
No update is lost: `params - base` is always the change that has not been taken yet.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import TOTALS
from hogbatch.kernels.gpu.device import Device
from hogbatch.kernels.layers import LayerView
from hogbatch.store.merge import MERGE_RULES, MergeRule
from hogbatch.store.model import SharedModel

HostFloats = NDArray[np.float32]
REPETITIONS = 3  # of a measurement; the fastest is used, because noise only slows down


class ReplicaPart(Protocol):
    """A part of the parameters.

    The exchange thread calls `merge` and `fetch`, the training thread calls the other methods.
    """

    def begin(self, rows: Any) -> None:
        """Pull what an interval over `rows` needs; all changes taken must have been merged."""

    def refresh(self) -> None:
        """Pull everything; all changes taken must have been merged."""

    def rejoin(self, rows: Any) -> None:
        """Apply the fetched parameters; `rows` are those of the next interval, or None."""

    def take(self, finite: Any) -> None:
        """Take the change of the current interval; set finite[0] = 0 if it is not finite."""

    def discard(self) -> None:
        """Undo the change that has not been taken."""

    def reset(self) -> None:
        """Clear the replica; `begin` must follow."""

    def merge(self, fraction: float) -> None:
        """Add the change taken, times `fraction`, to the shared parameters; returns when done."""

    def fetch(self) -> None:
        """Pull the shared parameters for the next `rejoin`."""


class FlatPart:
    """A contiguous range of the parameters, exchanged as a whole.

    `params`[P] is on the device, `shared`[P] on the host. The change is added either by the device,
    which writes to host memory, or by the host, whichever is faster.
    """

    def __init__(
        self, device: Device, params: Any, shared: HostFloats, rule: MergeRule, pinned: bool
    ) -> None:
        self._device = device
        self._params = params
        self._shared = shared
        self._base, self._change, self._pulled = (
            device.zeros(params.size, np.float32) for _ in range(3)
        )
        self._host_buffer = device.pinned(shared.size, np.float32)
        methods = [self._add_on_host(shared, rule)]
        if rule.additive and pinned and (mapped := device.mapped(shared)) is not None:
            methods.append(self._add_on_device(mapped))
        self._add = methods[0] if len(methods) == 1 else methods[self._fastest_method()]

    def begin(self, rows: Any) -> None:
        self.refresh()

    def refresh(self) -> None:
        self.fetch()
        self._device.xp.copyto(self._params, self._pulled)
        self._device.xp.copyto(self._base, self._pulled)

    def rejoin(self, rows: Any) -> None:
        self._device.kernels.rejoin(self._pulled, self._params, self._base)

    def take(self, finite: Any) -> None:
        self._device.kernels.take(self._params, self._base, self._change, finite)

    def discard(self) -> None:
        self._device.xp.copyto(self._params, self._base)

    def reset(self) -> None:
        self._params.fill(0)
        self._base.fill(0)

    def merge(self, fraction: float) -> None:
        self._add(fraction)

    def fetch(self) -> None:
        self._device.copy_into(self._pulled, self._shared)

    def _add_on_host(self, shared: HostFloats, rule: MergeRule) -> Callable[[float], None]:
        copied = self._change if rule.takes_change else self._base  # the replica at the last `take`

        def add(fraction: float) -> None:
            self._device.to_host(copied, self._host_buffer)
            rule.merge(shared, self._host_buffer, fraction)

        return add

    def _add_on_device(self, mapped: Any) -> Callable[[float], None]:
        def add(fraction: float) -> None:
            self._device.kernels.add(fraction, self._change, mapped)
            self._device.synchronize()

        return add

    def _fastest_method(self) -> int:
        """0 if the host adds faster, 1 if the device does; measured on separate memory."""
        trial = self._device.pinned(self._shared.size, np.float32)
        trial[:] = 0
        mapped = self._device.mapped(trial)
        methods = [self._add_on_host(trial, MERGE_RULES["delta"]), self._add_on_device(mapped)]
        seconds = [fastest(partial(method, 1.0)) for method in methods]
        return seconds.index(min(seconds))


class _RowTable(NamedTuple):
    """The arrays of one exchanged table, all [F, H]."""

    params: Any  # on the device
    shared: HostFloats
    mapped: Any  # `shared` as the device sees it
    base: Any
    change: Any


class TouchedRowsPart:
    """The weights of a wide sparse layer; only the rows touched by an interval are exchanged.

    The device reads and writes them in host memory. `tables` are (params, shared, mapped) of the
    weights and of the slots exchanged with them. The other rows of the replica are outdated and are
    not read.
    """

    def __init__(
        self, device: Device, inputs: Inputs, tables: Sequence[tuple[Any, HostFloats, Any]]
    ) -> None:
        self._device = device
        self._inputs = inputs
        self._tables = []
        for params, shared, mapped in tables:
            base, change = (device.empty(params.shape, np.float32) for _ in range(2))
            device.xp.copyto(base, params)
            self._tables.append(_RowTable(params, shared, mapped, base, change))
        features = len(self._tables[0].params)
        self._head = device.xp.full(features, -1, np.int32)
        # Two lists of touched rows and their lengths: for the current interval, and for the one
        # that is being exchanged or starts next.
        self._lists = [
            (device.empty(features, np.int32), device.zeros(1, np.int32)) for _ in range(2)
        ]

    def begin(self, rows: Any) -> None:
        self._find(rows)
        self._lists.reverse()

    def refresh(self) -> None:
        for table in self._tables:
            self._device.copy_into(table.params, table.shared)
            self._device.xp.copyto(table.base, table.params)

    def rejoin(self, rows: Any) -> None:
        if rows is not None:
            self._find(rows)

    def take(self, finite: Any) -> None:
        for params, _, _, base, change in self._tables:
            self._device.kernels.take_rows(*self._lists[0], params, base, change, finite)
        self._lists.reverse()

    def discard(self) -> None:
        for table in self._tables:
            self._device.xp.copyto(table.params, table.base)

    def reset(self) -> None:
        for table in self._tables:
            table.params.fill(0)
            table.base.fill(0)

    def merge(self, fraction: float) -> None:
        for table in self._tables:
            self._device.kernels.add_rows(fraction, *self._lists[1], table.change, table.mapped)
        self._device.synchronize()

    def fetch(self) -> None:
        """Do nothing: `rejoin` pulls the rows that it needs."""

    def _find(self, rows: Any) -> None:
        """List the rows that the next interval touches, and pull them."""
        kernels, touched = self._device.kernels, self._lists[1]
        kernels.find_rows(self._inputs, rows, self._head, *touched)
        for params, _, mapped, base, _ in self._tables:
            kernels.rejoin_rows(*touched, mapped, params, base)


class Replica:
    """The parameters [P] and optimizer slots on the device, exchanged in parts.

    The slots are initialized from shared memory (from the CPU workers' first thread); otherwise the
    first steps of a worker that joins late would be as large as those of an untrained model. They
    are not exchanged, except the first `sums` of them: Adagrad's slots of a sparse input layer are
    exchanged with its weights, because every occurrence of a rare feature counts, in all workers.
    """

    def __init__(self, device: Device, model: SharedModel, rule: str, sums: int = 0) -> None:
        self.device = device
        self.params = device.to_device(model.params)
        self.slots = [device.to_device(slot) for slot in (model.first, model.second)]
        self.steps = int(model.steps[0])  # batches that the slots include
        self._model, self._rule, self._sums = model, MERGE_RULES[rule], sums
        self.totals = device.zeros(TOTALS, np.float64)  # of the batches since the last `take`
        self.taken_totals = device.zeros(TOTALS, np.float64)
        self.finite = device.zeros(1, np.float32)
        self._pinned = device.pin(model.memory)  # in one call: two arrays may share a page
        if not self._pinned:
            logging.warning("shared memory cannot be pinned, so pulls and merges are slower")
        self._parts: list[ReplicaPart] = []

    def exchange_all(self) -> None:
        """Exchange all parameters at every merge."""
        self._parts = [self._flat(self.params, self._model.params)]
        if self._sums and self._rule.additive:
            slot, shared = self.slots[0][: self._sums], self._model.first[: self._sums]
            self._parts.append(self._flat(slot, shared))

    def exchange_touched_rows(self, first: LayerView, inputs: Inputs) -> bool:
        """Exchange only the touched rows of the first layer, over CSR `inputs` on the device.

        Returns False, and changes nothing, if the merge rule or the device does not support it.
        """
        shape, end = (first.fan_in, first.fan_out), first.fan_in * first.fan_out
        if not self._rule.additive or not self._pinned:
            return False
        pairs = [(self.params, self._model.params)]
        pairs += [(self.slots[0], self._model.first)] if self._sums else []
        tables = []
        for params, shared in pairs:
            mapped = self.device.mapped(shared)
            if mapped is None:
                return False
            cut = [flat[:end].reshape(shape) for flat in (params, shared, mapped)]
            tables.append((cut[0], cut[1], cut[2]))
        tail = self._flat(self.params[first.bias :], self._model.params[first.bias :])
        self._parts = [TouchedRowsPart(self.device, inputs, tables), tail]
        return True

    def _flat(self, params: Any, shared: HostFloats) -> FlatPart:
        return FlatPart(self.device, params, shared, self._rule, self._pinned)

    # Called by the training thread ----------------------------------------------------------

    def begin(self, rows: Any) -> None:
        """Pull for an interval over `rows`; no exchange may be pending."""
        for part in self._parts:
            part.begin(rows)

    def refresh(self) -> None:
        """Copy all shared parameters to the replica; no exchange may be pending."""
        for part in self._parts:
            part.refresh()

    def rejoin(self, rows: Any) -> None:
        """Apply what `fetch` has pulled; `rows` are those of the next interval, or None."""
        for part in self._parts:
            part.rejoin(rows)

    def take(self) -> Any:
        """Take the change and the totals of the interval; return the event of its completion."""
        self.finite.fill(1)
        for part in self._parts:
            part.take(self.finite)
        self.device.xp.copyto(self.taken_totals, self.totals)
        self.totals.fill(0)
        return self.device.record_event()

    def discard(self) -> None:
        """Undo the change that has not been taken."""
        for part in self._parts:
            part.discard()
        self.totals.fill(0)

    def reset(self) -> None:
        """Clear the replica and reload the optimizer slots; `begin` must follow."""
        for slot, shared in zip(self.slots, (self._model.first, self._model.second), strict=True):
            self.device.copy_into(slot, shared)
        for part in self._parts:
            part.reset()
        self.totals.fill(0)
        self.steps = int(self._model.steps[0])

    # Called by the exchange thread ----------------------------------------------------------

    def merge(self, fraction: float) -> None:
        """Add the change taken, times `fraction`, to the shared parameters."""
        for part in self._parts:
            part.merge(fraction)

    def fetch(self) -> None:
        """Pull the shared parameters for the next `rejoin`."""
        for part in self._parts:
            part.fetch()

    # Called before training -----------------------------------------------------------------

    def measure_merge(self, rows: Any) -> tuple[float, float]:
        """Measure the cost of a merge: seconds that block training, and seconds in the background.

        The measurement does not change the shared parameters.
        """
        self.begin(rows)

        def boundary() -> None:
            self.rejoin(rows)
            self.take()
            self.device.synchronize()

        blocking_seconds = fastest(boundary)
        pull_seconds = fastest(self.fetch)
        self.reset()
        return blocking_seconds, 2 * pull_seconds  # a merge transfers as much as a pull


def fastest(work: Callable[[], None]) -> float:
    """Seconds of the fastest of REPETITIONS calls of `work`, after one warm-up call."""
    work()
    seconds = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
