"""The state of a team of threads of a CPU worker, or of a thread on its own: the shared model, and
arrays of its own.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.workers.compute.assignment import Assignment


class ThreadState(NamedTuple):
    """Arrays that one thread, or the first one of a team, computes on."""

    number: int
    model: Any  # kernels.cpu.model.ModelView: the shared model, with slots of this team
    head: NDArray[np.int32]  # [F], see kernels.contract.Links


def thread_state(assignment: Assignment, number: int) -> ThreadState:
    """Return the state of team or thread `number`.

    Number 0 keeps its slots in shared memory, so that workers that join later need not start at
    zero: the first steps of Adagrad from zero would be large enough to ruin a trained model.
    """
    from hogbatch.kernels.cpu.model import ModelView, layer_table  # imports Numba

    shared, layers = assignment.model, assignment.network.layer_views()
    slots = shared.first, shared.second
    # np.zeros takes memory when it is written to; np.zeros_like would write all of it.
    own = slots if number == 0 else tuple(np.zeros(slot.shape, slot.dtype) for slot in slots)
    model = ModelView(layer_table(layers), shared.params, *slots, shared.steps, *own)
    thread = ThreadState(number, model, np.full(layers[0].fan_in, -1, np.int32))
    copy_slots(assignment, thread)
    return thread


def copy_slots(assignment: Assignment, thread: ThreadState) -> None:
    """Copy the current slots in shared memory to the slots that `thread` keeps for itself.

    These are the slots of dense layers. Those of a sparse input layer and of a hashed output layer
    are shared by all threads: a thread never touches its copies, which take no memory.
    """
    shared, network = assignment.model, assignment.network
    first = 1 if assignment.train.sparse else 0
    last = len(network.layers) - (1 if assignment.welcome.lsh is not None else 0)
    copies = (shared.first, thread.model.own_first), (shared.second, thread.model.own_second)
    for slots, own in copies if thread.number > 0 else ():
        unused = 2 * (len(network.layers) - last)
        for tensor in network.tensors()[2 * first :][: -unused or None] if slots.size else ():
            tensor.view(own)[:] = tensor.view(slots)
