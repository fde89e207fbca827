"""The shared model as seen by threads whose batches overlap in time.

A batch is a sequence of stages (`kernels.cpu.loops`). Each runs on the parameters and optimizer
slots as they are at that moment, in place, with the kernels of a real run; between two stages of a
batch, stages of other batches run.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.lsh import Lsh
from hogbatch.data.batch import Examples
from hogbatch.kernels.contract import ACTIVE, TOTALS, UPDATES, Hyper
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.kernels.cpu.network import read
from hogbatch.model.network import Network
from hogbatch.store.model import SharedModel
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.hash_tables import HashTables
from hogbatch.workers.compute.thread_state import ThreadState, copy_slots, thread_state


@dataclass(slots=True)
class Thread:
    """A thread or a team of threads that trains, with the slots that it keeps for itself."""

    assignment: Assignment
    state: ThreadState
    tables: HashTables | None  # of its worker; None if no layer is hashed
    delayed: bool  # whether all gradients of a batch are computed before its updates
    pinned: int | None = None  # the set of `tables` to look up in; None: the current one

    def reset(self) -> None:
        """Take over the shared optimizer slots again, after the model was rolled back."""
        copy_slots(self.assignment, self.state)


class StagedBatch:
    """A batch of a thread, `rows`[B] of the training set, in stages.

    Nothing runs if the fence moves before its first stage. The stages are the forward and the
    backward passes of the layers, or those of `kernels.cpu.backbone`. If all run at once, the loop
    of a real run computes them. If the thread is `delayed`, the first stage computes all gradients,
    and the others update the layers, last to first; only networks of the dense loop have such
    batches: those of teams.
    """

    def __init__(
        self,
        model: "ConcurrentModel",
        thread: Thread,
        rows: NDArray[np.int64],
        settings: BatchSettings,
        hyper: Hyper,
    ) -> None:
        assert len(rows) <= settings.batch_size, "threads have memory for batches of this size"
        train = model.train
        self._shared, self._data = model, (train.inputs, train.labels, rows)
        self._settings, self._hyper, self._fence = settings, hyper, thread.assignment.fence
        self._own: Any = thread.state.head
        self._model: tuple[Any, ...] = (thread.state.model,)
        self._thread = thread
        self._space: Any = None  # workspace of the kernels, once the batch has begun
        self.stages = 1 + model.layers if thread.delayed else model.loop.stages
        self.done = 0  # stages
        self.totals = np.zeros(TOTALS)  # [TOTALS] of the kernels
        self.stored = 0  # values in the rows; 0 if the inputs are dense
        if train.sparse:
            indptr = train.inputs.indptr
            self.stored = int((indptr[rows + 1] - indptr[rows]).sum())

    @property
    def active(self) -> int:
        """Outputs of a hashed layer that are computed; 0 before they are known."""
        return int(self.totals[ACTIVE])

    def run(self, stop: int) -> None:
        """Run the stages up to `stop`, on the model as it is now."""
        first, self.done = self.done, stop
        if first == 0:
            self._look_up()
        if first == stop:
            return
        if first == 0 and stop == self.stages and not self._thread.delayed:
            rest = self._settings, self._hyper, self._own, self._fence, self.totals
            self._shared.loop.train(*self._model, *self._data, *rest)
            return
        if first == 0 and self._fence[0] == self._settings.fence:
            rows = len(self._data[-1])
            loop = self._shared.loop
            self._space = loop.open_batches(*self._model, *self._data, rows, self._own)
        if self._space is None:
            return
        if self._thread.delayed:
            self._run_delayed(first, stop)
        else:
            self._shared.loop.run_stages(*self._arguments, first, stop, True)

    def _run_delayed(self, first: int, stop: int) -> None:
        if first == 0:
            self._model[0].steps[0] = self._shared.steps[0]
            read(*self._arguments)
        if first <= 1 < stop:
            self._shared.steps[0] += int(self.totals[UPDATES])
        before = self._shared.layers - 1  # stages of the kernels that the first one replaces
        if stop > 1:
            begin = before + max(first, 1)
            self._shared.loop.run_stages(*self._arguments, begin, before + stop, False)

    def _look_up(self) -> None:
        """Use the hash tables of this moment."""
        tables = self._thread.tables
        if tables is not None:
            pinned = self._thread.pinned
            finder = tables.finder(tables.current if pinned is None else pinned)
            self._model = *self._model, finder
            self._own = tables.thread(self._thread.state, self._settings.batch_size)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """The first arguments of `run_stages`, and those of `read`."""
        settings = self._settings, self._hyper
        return *self._model, *self._data, *settings, self._space, self.totals


class ConcurrentModel:
    """The parameters, and the optimizer slots that threads share, with overlapping batches.

    `train` is the training set, and `lsh` has the settings of the hash tables, if the output layer
    is hashed. With `alone`, only one thread or one team trains, so no batches overlap.
    """

    def __init__(
        self,
        model: SharedModel,
        network: Network,
        train: Examples,
        *,
        lsh: Lsh | None,
        alone: bool,
    ) -> None:
        self.train, self.alone = train, alone
        self.steps = model.steps  # [1]: updates of the shared model
        layers, below = network.layer_views(), network.placed_backbone()
        self.loop = loop_for(layers, sparse=train.sparse, hashed=lsh is not None, backbone=below)
        self.layers = len(layers)
        self._steps = np.zeros(1, np.int64)  # of the batch that reads the model in one stage
        self._head = np.full(layers[0].fan_in, -1, np.int32)  # only one stage runs at a time

    def thread(
        self,
        assignment: Assignment,
        number: int,
        tables: HashTables | None = None,
        *,
        team: bool = False,
    ) -> Thread:
        """Return thread `number` of the worker with `assignment`, with slots of its own.

        `tables` are those of the worker, if the output layer is hashed. `team`: this is team
        `number` of several threads.
        """
        state = thread_state(assignment, number)
        delayed = team and not self.alone
        if not self.alone:
            state = state._replace(head=self._head)
        if delayed:
            state = state._replace(model=state.model._replace(steps=self._steps))
        return Thread(assignment, state, tables, delayed)
