"""What one thread of a CPU worker computes on: the shared model, and what is its own."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.session import Assignment


class ThreadState(NamedTuple):
    """What one thread computes on."""

    number: int
    model: (
        Any  # kernels.cpu.model.ModelView: the shared model, with slots of dense layers of its own
    )
    head: NDArray[np.int32]  # [F], see kernels.contract.Links


def thread_state(assignment: Assignment, number: int) -> ThreadState:
    """What thread `number` is to compute on.

    Thread 0 keeps its slots in shared memory, so that whoever joins later need not start at zero:
    steps of Adagrad from there would be long enough to spoil what has been learnt.
    """
    from hogbatch.kernels.cpu.model import ModelView  # compiles; nobody else needs Numba

    shared, plan = assignment.model, assignment.network.plan()
    slots = shared.first, shared.second
    # np.zeros takes memory where it is written to; np.zeros_like would write all of it.
    own = slots if number == 0 else tuple(np.zeros(slot.shape, slot.dtype) for slot in slots)
    model = ModelView(np.array(plan, np.int64), shared.params, *slots, shared.steps, *own)
    thread = ThreadState(number, model, np.full(plan[0].fan_in, -1, np.int32))
    copy_slots(assignment, thread)
    return thread


def copy_slots(assignment: Assignment, thread: ThreadState) -> None:
    """Let the slots that a thread has of its own be as those in shared memory are now.

    It has them in dense layers. Those of sparse inputs and of hashed outputs are shared: their part
    of a thread's own is never touched, and takes no memory.
    """
    shared, network = assignment.model, assignment.network
    first = 1 if assignment.train.sparse else 0
    last = len(network.layers) - (1 if assignment.welcome.lsh is not None else 0)
    copies = (shared.first, thread.model.own_first), (shared.second, thread.model.own_second)
    for slots, own in copies if thread.number > 0 else ():
        for tensor in network.tensors()[2 * first : 2 * last] if slots.size else ():
            tensor.view(own)[:] = tensor.view(slots)
