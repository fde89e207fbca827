"""A GPU worker's replica of the parameters, and what travels between it and the shared ones.

At the border of two intervals (batches between two merges) the training thread
    rejoins   what was pulled meanwhile takes the place of what the interval began with,
    takes     the change that the interval made;
the next interval then begins at once, while the exchange thread (:mod:`workers.exchange`)
    merges    adds the change to the shared parameters,
    fetches   pulls them for the next border.
Nothing is lost on either side: `params - base` is always what has not been taken yet.
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
from hogbatch.store.merge import MERGES
from hogbatch.store.model import SharedModel

HostFloats = NDArray[np.float32]
REPETITIONS = 3  # of a measurement; the fastest counts, noise only ever slows down


class Part(Protocol):
    """Some of the parameters. `begin` to `take` are the training thread's, the rest is the
    exchange thread's."""

    def begin(self, rows: Any) -> None:
        """Pull what an interval over `rows` needs, where everything taken has been merged."""

    def refresh(self) -> None:
        """Pull all, where everything taken has been merged."""

    def rejoin(self, rows: Any) -> None:
        """Put in what was fetched; `rows` are those of the interval to come, or None."""

    def take(self, finite: Any) -> None:
        """Take the change of the interval that ends; finite[0] = 0 if it is not finite."""

    def drop(self) -> None:
        """Undo what has not been taken."""

    def forget(self) -> None:
        """Let go of all: `begin` follows."""

    def merge(self, fraction: float) -> None:
        """Add what was taken, times `share`, to the shared parameters. Returns when it is done."""

    def fetch(self) -> None:
        """Pull for the next `rejoin`."""


class Flat:
    """A run of the flat parameters, which travels as a whole.

    `params`[P] is the replica's, `shared`[P] the host's. The change is added by the device, which
    writes the host's memory, or by the host, whichever is faster.
    """

    def __init__(
        self, device: Device, params: Any, shared: HostFloats, rule: str, pinned: bool
    ) -> None:
        self._device = device
        self._params = params
        self._shared = shared
        self._base, self._change, self._pulled = (
            device.zeros(params.size, np.float32) for _ in range(3)
        )
        self._landing = device.pinned(shared.size, np.float32)
        ways = [self._by_host(shared, rule)]
        if rule == "delta" and pinned and (mapped := device.mapped(shared)) is not None:
            ways.append(self._by_device(mapped))
        self._add = ways[0] if len(ways) == 1 else ways[self._faster_way()]

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

    def drop(self) -> None:
        self._device.xp.copyto(self._params, self._base)

    def forget(self) -> None:
        self._params.fill(0)
        self._base.fill(0)

    def merge(self, fraction: float) -> None:
        self._add(fraction)

    def fetch(self) -> None:
        self._device.copy_into(self._pulled, self._shared)

    def _by_host(self, shared: HostFloats, rule: str) -> Callable[[float], None]:
        sent = self._change if rule == "delta" else self._base  # the replica when it was taken

        def add(fraction: float) -> None:
            self._device.to_host(sent, self._landing)
            MERGES[rule](shared, self._landing, fraction)

        return add

    def _by_device(self, mapped: Any) -> Callable[[float], None]:
        def add(fraction: float) -> None:
            self._device.kernels.add(fraction, self._change, mapped)
            self._device.synchronize()

        return add

    def _faster_way(self) -> int:
        """0 if the host adds faster, 1 if the device does; tried on memory that nobody else has."""
        trial = self._device.pinned(self._shared.size, np.float32)
        trial[:] = 0
        mapped = self._device.mapped(trial)
        ways = [self._by_host(trial, "delta"), self._by_device(mapped)]
        seconds = [fastest(partial(way, 1.0)) for way in ways]
        return seconds.index(min(seconds))


class _Table(NamedTuple):
    """What a row of a feature is cut from, all [F, H]."""

    params: Any  # on the device
    shared: HostFloats
    mapped: Any  # `shared` as the device sees it
    base: Any
    change: Any


class TouchedRows:
    """The weights of a wide sparse layer: only the rows that an interval touches travel.

    They go straight between the device and the host's memory. `tables` are (params, shared, mapped)
    of the weights, and of slots that travel with them; the other rows of the replica are old, and
    nobody reads them.
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
            self._tables.append(_Table(params, shared, mapped, base, change))
        features = len(self._tables[0].params)
        self._head = device.xp.full(features, -1, np.int32)
        # Two lists of touched rows and their lengths: of the interval under way, and of the one
        # that is being exchanged or about to begin.
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

    def drop(self) -> None:
        for table in self._tables:
            self._device.xp.copyto(table.params, table.base)

    def forget(self) -> None:
        for table in self._tables:
            table.params.fill(0)
            table.base.fill(0)

    def merge(self, fraction: float) -> None:
        for table in self._tables:
            self._device.kernels.add_rows(fraction, *self._lists[1], table.change, table.mapped)
        self._device.synchronize()

    def fetch(self) -> None:
        """Rows are pulled where they are needed: `rejoin` reads the shared ones."""

    def _find(self, rows: Any) -> None:
        """List the rows that an interval to come touches, and pull them."""
        kernels, touched = self._device.kernels, self._lists[1]
        kernels.find_rows(self._inputs, rows, self._head, *touched)
        for params, _, mapped, base, _ in self._tables:
            kernels.rejoin_rows(*touched, mapped, params, base)


class Replica:
    """The parameters [P] on the device with the optimizer's slots, in parts that travel.

    The slots begin as those in shared memory are (those of the CPU workers' first thread), or the
    first steps of a worker that joins late would be as long as those of an untrained model. Then
    they stay, but for `sums` of them: Adagrad's of a sparse input layer travel with its weights,
    because every occurrence of a rare feature counts, whoever met it.
    """

    def __init__(self, device: Device, model: SharedModel, rule: str, sums: int = 0) -> None:
        self.device = device
        self.params = device.to_device(model.params)
        self.slots = [device.to_device(slot) for slot in (model.first, model.second)]
        self.steps = int(model.steps[0])  # batches that the slots have seen
        self._model, self._rule, self._sums = model, rule, sums
        self.totals = device.zeros(TOTALS, np.float64)  # of the batches since the last `take`
        self.taken_totals = device.zeros(TOTALS, np.float64)
        self.finite = device.zeros(1, np.float32)
        self._pinned = device.pin(model.memory)  # at once: two arrays may share a page
        if not self._pinned:
            logging.warning("shared memory cannot be pinned: pulls and merges are slower")
        self._parts: list[Part] = []

    def travel_whole(self) -> None:
        """Exchange all parameters at every merge."""
        self._parts = [self._flat(self.params, self._model.params)]
        if self._sums and self._rule == "delta":
            slot, shared = self.slots[0][: self._sums], self._model.first[: self._sums]
            self._parts.append(self._flat(slot, shared))

    def travel_by_rows(self, first: LayerView, inputs: Inputs) -> bool:
        """Exchange only the touched rows of the first layer, over CSR `inputs` on the device.

        False, and nothing has changed, where the merge rule or the device does not allow it.
        """
        shape, end = (first.fan_in, first.fan_out), first.fan_in * first.fan_out
        if self._rule != "delta" or not self._pinned:
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
        self._parts = [TouchedRows(self.device, inputs, tables), tail]
        return True

    def _flat(self, params: Any, shared: HostFloats) -> Flat:
        return Flat(self.device, params, shared, self._rule, self._pinned)

    # The training thread's ------------------------------------------------------------------

    def begin(self, rows: Any) -> None:
        """Pull for an interval over `rows`, where nothing is on its way."""
        for part in self._parts:
            part.begin(rows)

    def refresh(self) -> None:
        """replica = shared parameters, all of them, where nothing is on its way."""
        for part in self._parts:
            part.refresh()

    def rejoin(self, rows: Any) -> None:
        """Put in what `fetch` has pulled; `rows` are those of the interval to come, or None."""
        for part in self._parts:
            part.rejoin(rows)

    def take(self) -> Any:
        """Take the change and the totals of the interval that ends; the mark of when it is done."""
        self.finite.fill(1)
        for part in self._parts:
            part.take(self.finite)
        self.device.xp.copyto(self.taken_totals, self.totals)
        self.totals.fill(0)
        return self.device.mark()

    def drop(self) -> None:
        """Undo what has not been taken."""
        for part in self._parts:
            part.drop()
        self.totals.fill(0)

    def forget(self) -> None:
        """Let go of all, the optimizer's slots too; `begin` follows."""
        for slot, shared in zip(self.slots, (self._model.first, self._model.second), strict=True):
            self.device.copy_into(slot, shared)
        for part in self._parts:
            part.forget()
        self.totals.fill(0)
        self.steps = int(self._model.steps[0])

    # The exchange thread's ------------------------------------------------------------------

    def merge(self, fraction: float) -> None:
        """Add what was taken, times `share`, to the shared parameters."""
        for part in self._parts:
            part.merge(fraction)

    def fetch(self) -> None:
        """Pull for the next `rejoin`."""
        for part in self._parts:
            part.fetch()

    # Measured before training ---------------------------------------------------------------

    def merging_seconds(self, rows: Any) -> tuple[float, float]:
        """What one merge costs: seconds in the way of training, and beside it.

        Tried without a change: nothing reaches the shared parameters.
        """
        self.begin(rows)

        def border() -> None:
            self.rejoin(rows)
            self.take()
            self.device.synchronize()

        in_the_way = fastest(border)
        pulling = fastest(self.fetch)
        self.forget()
        return in_the_way, 2 * pulling  # a merge moves as much as a pull


def fastest(work: Callable[[], None]) -> float:
    """Seconds of the fastest of some repetitions, after one that does not count."""
    work()
    seconds = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
