"""Measures how long a CPU worker takes for batches, before training."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hogbatch.kernels.contract import TOTALS
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.measured_batches import MAX_CPU_MODEL_BYTES, measure_cpu_sizes
from hogbatch.workers.compute.thread_state import thread_state

if TYPE_CHECKING:
    from hogbatch.kernels.cpu.loops import CompiledLoop

SHORT_CALL_S = 0.5e-3  # a shorter call computes several batches: the call itself takes time


def profile(loop: "CompiledLoop", assignment: Assignment, settings: Any) -> Profile:
    """Measure batches with `loop` on a copy of the model; empty for large models.

    `settings` are the BatchSettings of a lease with the largest batches.
    """
    if assignment.model.params.nbytes > MAX_CPU_MODEL_BYTES:
        return ()
    largest, mean_seconds = settings.batch_size, _timer(loop, assignment, settings)

    def seconds_of(rows: int) -> float:
        once = mean_seconds(rows, 1)
        # Not more rows than in the largest batch: then the call adds as much to each row of both.
        batches = min(largest // rows, int(SHORT_CALL_S / once))
        return mean_seconds(rows, batches) if batches > 1 else once

    return measure_cpu_sizes(seconds_of, largest)


def _timer(
    loop: "CompiledLoop", assignment: Assignment, settings: Any
) -> Callable[[int, int], float]:
    """Return a function of rows and n: the mean seconds of n batches of that many rows."""
    thread = thread_state(assignment, 0)
    copies = {
        name: getattr(thread.model, name).copy()
        for name in ("params", "first", "second", "steps", "own_first", "own_second")
    }
    model, train, hyper = thread.model._replace(**copies), assignment.train, assignment.hyper(0.0)
    fence = np.full(1, settings.fence, np.int64)

    def mean_seconds(rows: int, batches: int) -> float:
        began = time.perf_counter()
        loop.train(
            model,
            train.inputs,
            train.labels,
            np.arange(batches * rows),
            settings._replace(batch_size=rows),
            hyper,
            thread.head,
            fence,
            np.zeros(TOTALS),
        )
        return (time.perf_counter() - began) / batches

    return mean_seconds
