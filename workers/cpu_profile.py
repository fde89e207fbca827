"""Measures how long a CPU worker takes for batches, before training."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hogbatch.kernels.contract import TOTALS
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.measured_batches import MAX_CPU_MODEL_BYTES, measure_cpu_sizes
from hogbatch.workers.compute.thread_state import thread_state

if TYPE_CHECKING:
    from hogbatch.kernels.cpu.loops import CompiledLoop


def profile(loop: "CompiledLoop", assignment: Assignment, settings: Any) -> Profile:
    """Measure batches with `loop` on a copy of the model; empty for large models.

    `settings` are the BatchSettings of a lease with the largest batches. The rows are drawn at
    random, as those of a lease, but they are the same in all repetitions.
    """
    if assignment.model.params.nbytes > MAX_CPU_MODEL_BYTES:
        return ()
    thread = thread_state(assignment, 0)
    copies = {
        name: getattr(thread.model, name).copy()
        for name in ("params", "first", "second", "steps", "own_first", "own_second")
    }
    model, train, hyper = thread.model._replace(**copies), assignment.train, assignment.hyper(0.0)
    fence, data = np.full(1, settings.fence, np.int64), (train.inputs, train.labels)

    def seconds_of(rows: int, batches: int) -> float:
        drawn = np.random.default_rng(0).integers(train.rows, size=batches * rows)
        own, totals = settings._replace(batch_size=rows), np.zeros(TOTALS)
        began = time.perf_counter()
        loop.train(model, *data, drawn, own, hyper, thread.head, fence, totals)
        return time.perf_counter() - began

    return measure_cpu_sizes(seconds_of, settings.batch_size, train.rows)
