"""A GPU worker's replica of the parameters, and its exchange with the shared parameters.

At the end of each interval (the batches between two merges) the training thread calls
    hand_over   replaces the base of the replica by the parameters fetched last, and takes the
                change made in the interval.
The next interval then starts immediately, while the exchange thread (`exchange.py`) calls
    merge       adds the change to the shared parameters,
    fetch       pulls the shared parameters for the next `hand_over`.
No update is lost: `params - base` is always the change that has not been taken yet.
"""

import logging
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np

from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import OPTIMIZERS, SUMMED_SLOTS, TOTALS
from hogbatch.kernels.gpu.device import Device
from hogbatch.kernels.layers import LayerView
from hogbatch.store.merge import MERGE_RULES
from hogbatch.store.model import SharedModel
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.merge_interval import MergeCost
from hogbatch.workers.parts import REPETITIONS, FlatPart, HostFloats, ReplicaPart, TouchedRowsPart
from hogbatch.workers.transfers import Transfers


class Replica:
    """The parameters [P] and optimizer slots on the device, exchanged in parts.

    The slots are initialized from shared memory (from the CPU workers' first thread); otherwise the
    first steps of a worker that joins late would be as large as those of an untrained model. They
    are not exchanged, except the first `sums` of them: Adagrad's slots of a sparse input layer are
    exchanged with its weights, because every occurrence of a rare feature counts, in all workers.

    With `per_weight`, less is added to the parameters that others have changed more, if all of them
    are exchanged with the rule "delta".
    """

    def __init__(
        self,
        device: Device,
        model: SharedModel,
        rule: str,
        sums: int = 0,
        *,
        per_weight: bool = False,
    ) -> None:
        self.device = device
        self.params = device.to_device(model.params)
        self.slots = [device.to_device(slot) for slot in (model.first, model.second)]
        self.steps = int(model.steps[0])  # batches that the slots include
        self._model, self._rule, self._sums = model, MERGE_RULES[rule], sums
        self._per_weight = per_weight and self._rule.additive
        self.damps_weights = False  # whether `merge` damps changes by weights
        self.totals = device.zeros(TOTALS, np.float64)  # since the last `hand_over`
        # On the host: the totals of the change that was taken last, and 0 if it is not finite.
        self.taken_totals, self._totals_there = device.visible(TOTALS, np.float64)
        self.finite, self._finite_there = device.visible(1, np.float32)
        self._pinned = device.pin(model.memory)  # in one call: two arrays may share a page
        if self._pinned:  # later mappings may have the same address
            weakref.finalize(self, device.unpin, model.memory).atexit = False
        else:
            logging.warning("shared memory cannot be pinned, so pulls and merges are slower")
        self._parts: list[ReplicaPart] = []
        self._repeat_hand_over: Callable[[], None] | None = None  # captured
        # Of merges and pulls. The training thread uses it only while no exchange is pending.
        self.transfers = Transfers()

    @classmethod
    def of(cls, device: Device, assignment: Assignment) -> Self:
        welcome, first = assignment.welcome, assignment.network.layer_views()[0]
        sums = assignment.train.sparse and OPTIMIZERS[welcome.optimizer.name] in SUMMED_SLOTS
        return cls(
            device,
            assignment.model,
            welcome.merge,
            first.fan_in * first.fan_out if sums else 0,
            per_weight=welcome.staleness_damping == "per-weight",
        )

    @property
    def touched(self) -> int | None:
        """The number of rows that the current interval touches; None if all are exchanged."""
        part = self._parts[0]
        return part.touched if isinstance(part, TouchedRowsPart) else None

    def exchange_all(self) -> None:
        """Exchange all parameters at every merge."""
        self._repeat_hand_over = None
        whole = self._flat(self.params, self._model.params, self._per_weight)
        self._parts, self.damps_weights = [whole], whole.damps
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
        self.damps_weights = False
        self._repeat_hand_over = None
        self._parts = [TouchedRowsPart(self.device, inputs, tables, self.transfers), tail]
        return True

    def _flat(self, params: Any, shared: HostFloats, per_weight: bool = False) -> FlatPart:
        arguments = self.device, params, shared, self._rule, self.transfers
        return FlatPart(*arguments, pinned=self._pinned, per_weight=per_weight)

    # Called by the training thread ----------------------------------------------------------

    def begin(self, rows: Any) -> None:
        """Pull for an interval over `rows`; no exchange may be pending."""
        for part in self._parts:
            part.begin(rows)

    def refresh(self) -> None:
        """Copy all shared parameters to the replica; no exchange may be pending."""
        for part in self._parts:
            part.refresh()

    def hand_over(self, rows: Any) -> Any:
        """Apply what `fetch` has pulled, and take the change and the totals of the interval.

        `rows` are those of the next interval, or None. `finite`[0] becomes 0 if the change contains
        NaN or Inf. Returns the event of its completion; the device does not train in the meantime.
        If all parameters are exchanged, the arrays are always the same, so the operations are
        captured and take one launch.
        """
        self.finite[0] = 1
        if isinstance(self._parts[0], TouchedRowsPart):
            self._take(rows)
        elif self._repeat_hand_over is None:
            self._repeat_hand_over = self.device.capture(partial(self._take, None))
        else:
            self._repeat_hand_over()
        return self.device.record_event()

    def _take(self, rows: Any) -> None:
        for part in self._parts:
            part.hand_over(rows, self._finite_there)
        self.device.kernels.drain(self.totals, self._totals_there)

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
        """Pull the shared parameters for the next `hand_over`."""
        for part in self._parts:
            part.fetch()

    # Called before training -----------------------------------------------------------------

    def measure_merge(self, rows: Any) -> MergeCost:
        """Measure the cost of merging an interval over `rows`, and clear the replica.

        The measurement does not change the shared parameters.
        """
        self.begin(rows)
        blocking = min(self._measure_taking(rows) for _ in range(REPETITIONS))
        background = sum(part.measure_merge() for part in self._parts)
        self.reset()
        self.transfers.take()  # only those of training are reported
        return MergeCost(blocking, background)

    def _measure_taking(self, rows: Any) -> float:
        start = self.device.record_event()
        end = self.hand_over(rows)
        self.device.synchronize_event(end)
        return self.device.elapsed(start, end)
