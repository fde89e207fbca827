"""Measures how long a CPU worker takes for a batch, before training."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hogbatch.compute.assignment import Assignment
from hogbatch.compute.device_profile import Profile
from hogbatch.compute.thread_state import thread_state
from hogbatch.kernels.contract import TOTALS, Hyper

if TYPE_CHECKING:
    from hogbatch.kernels.cpu.loops import CompiledLoop

REPETITIONS = 5  # the fastest counts, because noise only slows down
MAX_SECONDS = 0.1  # no repetition begins later
MAX_BYTES = 1 << 28  # of the model, which is copied


def profile(loop: "CompiledLoop", assignment: Assignment, settings: Any, rows: int) -> Profile:
    """Measure batches of `rows` rows with `loop` on a copy of the model; empty for large models.

    `settings` are the BatchSettings of a lease with such batches.
    """
    if assignment.model.params.nbytes > MAX_BYTES:
        return ()
    thread = thread_state(assignment, 0)
    copies = {
        name: getattr(thread.model, name).copy()
        for name in ("params", "first", "second", "steps", "own_first", "own_second")
    }
    model, train, optimizer = (
        thread.model._replace(**copies),
        assignment.train,
        assignment.welcome.optimizer,
    )
    hyper = Hyper(0.0, optimizer.l2, optimizer.momentum, optimizer.beta2, optimizer.epsilon)
    fence = np.full(1, settings.fence, np.int64)
    batch = np.arange(rows)
    fastest, began = float("inf"), time.perf_counter()
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        loop.train(
            *(model, train.inputs, train.labels, batch),
            *(settings, hyper, thread.head, fence, np.zeros(TOTALS)),
        )
        end = time.perf_counter()
        fastest = min(fastest, end - start)
        if end - began > MAX_SECONDS:
            break
    return ((rows, fastest),)
