"""The shared model as seen by threads whose batches overlap in time.

A batch reads the parameters when it begins, and writes its update when it ends; meanwhile, other
batches begin and end. The gradients of all layers' outputs are computed when the batch begins and
kept. When it ends, the same kernels as in a real run update the parameters from them: in place, on
the parameters and optimizer slots as they are then.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.compute.assignment import Assignment
from hogbatch.compute.hash_tables import HashTables
from hogbatch.compute.thread_state import ThreadState, copy_slots, thread_state
from hogbatch.config.lsh import Lsh
from hogbatch.data.batch import Examples
from hogbatch.kernels.contract import ACTIVE, TOTALS, UPDATES, Hyper
from hogbatch.kernels.cpu.delayed import delayed_loop
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.model.network import Network
from hogbatch.store.model import SharedModel


class Thread:
    """A thread that trains, with the slots that it keeps for itself."""

    def __init__(
        self, assignment: Assignment, state: ThreadState, tables: HashTables | None
    ) -> None:
        self.assignment = assignment
        self.state = state
        self.tables = tables  # of its worker; None if no layer is hashed
        self.pinned: int | None = None  # the set of `tables` to look up in; None: the current one

    def reset(self) -> None:
        """Take over the shared optimizer slots again, after the model was rolled back."""
        copy_slots(self.assignment, self.state)


class Change:
    """A batch that has begun, and its update of the shared model."""

    def __init__(
        self, thread: Thread, rows: NDArray[np.int64], settings: BatchSettings, layers: int
    ) -> None:
        self.thread, self.rows, self.settings = thread, rows, settings
        self.layers = layers  # of the network
        self.stored = 0  # values in the rows of the batch; 0 if its inputs are dense
        self.active = 0  # outputs of a hashed layer that were computed
        self.totals = np.zeros(TOTALS)  # [TOTALS] of the kernels
        self.unwritten = 0  # layers that are not in the shared model yet: the first ones
        self.hidden: Any = None  # for `DelayedLoop.write`
        self.outputs: Any = None  # for `DelayedLoop.write_outputs`
        self.hashing: tuple[Any, ...] = ()  # NeuronFinder and HashedThread, if outputs are hashed


class ConcurrentModel:
    """The parameters, and the optimizer slots that threads share, with overlapping batches.

    `train` is the training set, and `lsh` has the settings of the hash tables, if the output layer
    is hashed. With `alone`, only one thread
    trains, so no batches overlap: they are computed by the loop of a real run, with equal results.
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
        self._model, self._train, self._alone = model, train, alone
        layers = network.layer_views()
        self._loop = loop_for(layers, sparse=train.sparse, hashed=lsh is not None)
        self._delayed = delayed_loop(self._loop.name)
        self._layers = len(layers)
        self._hidden = self._layers - (self._delayed.write_outputs is not None)
        # Of the batch that is computed, or written: only one is at a time.
        self._steps = np.zeros(1, np.int64)
        self._head = np.full(layers[0].fan_in, -1, np.int32)

    def thread(
        self, assignment: Assignment, number: int, tables: HashTables | None = None
    ) -> Thread:
        """Return thread `number` of the worker with `assignment`, with slots of its own.

        `tables` are those of the worker, if the output layer is hashed.
        """
        state = thread_state(assignment, number)
        if not self._alone:
            model = state.model._replace(steps=self._steps)
            state = state._replace(model=model, head=self._head)
        return Thread(assignment, state, tables)

    def begin(
        self, thread: Thread, rows: NDArray[np.int64], settings: BatchSettings, hyper: Hyper
    ) -> Change:
        """Compute a batch of `rows`[B] of the training set, on the model as it is now.

        The shared model is not changed before `apply`, unless this model is `alone`.
        """
        assert len(rows) <= settings.batch_size, "threads have memory for batches of this size"
        change = Change(thread, rows.copy(), settings, self._layers)
        if thread.tables is not None:
            number = thread.tables.current if thread.pinned is None else thread.pinned
            own = thread.tables.thread(thread.state, settings.batch_size)
            change.hashing = thread.tables.finder(number), own
        if self._alone:
            self._train_alone(change, hyper)
        elif thread.assignment.fence[0] == settings.fence:
            self._begin(change, hyper)
        change.active = int(change.totals[ACTIVE])
        return change

    def apply(self, change: Change, first: int = 0) -> None:
        """Write the update of a batch to the shared model: of the layers from `first` on.

        Layers are written last to first, as by real threads, and each only once.
        """
        stop, change.unwritten = change.unwritten, min(first, change.unwritten)
        if stop == change.layers:
            self._model.steps[0] += int(change.totals[UPDATES])
        if change.hashing and change.active == 0:
            return  # the batch changes nothing
        state, write_outputs = change.thread.state, self._delayed.write_outputs
        if write_outputs is not None and first < stop == change.layers:
            write_outputs(state.model, change.settings, change.outputs, *change.hashing)
        stop = min(stop, self._hidden)
        if first < stop:
            self._delayed.write(
                *(state.model, self._train.inputs, change.rows, change.settings, change.hidden),
                *(state.head, first, stop),
            )

    def _train_alone(self, change: Change, hyper: Hyper) -> None:
        """Train on a batch as a real thread does."""
        train, state, rows = self._train, change.thread.state, change.rows
        if train.sparse:
            change.stored = int((train.inputs.indptr[rows + 1] - train.inputs.indptr[rows]).sum())
        finder, own = change.hashing or (None, state.head)
        model = (state.model,) if finder is None else (state.model, finder)
        self._loop.train(
            *(*model, train.inputs, train.labels, rows, change.settings, hyper),
            *(own, change.thread.assignment.fence, change.totals),
        )

    def _begin(self, change: Change, hyper: Hyper) -> None:
        """Compute the gradients of a batch."""
        self._steps[0] = self._model.steps[0]
        begun = self._delayed.begin(
            *(change.thread.state.model, self._train.inputs, self._train.labels, change.rows),
            *(change.settings, hyper, change.totals, *change.hashing),
        )
        change.hidden, change.outputs = (
            (begun, None) if self._delayed.write_outputs is None else begun
        )
        change.stored = change.hidden.stored
        change.unwritten = change.layers
