"""A rehearsed GPU worker: the threads of `hogbatch.workers.gpu` at the times of a described GPU.

The training thread queues operations on the device and runs ahead of it by up to one interval. So
it looks for the next lease when it has queued the last interval of a lease, not when that is done.
On gpu:host, each operation is done before the thread continues, as in `HostDevice`.
"""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from hogbatch.errors import HogbatchError
from hogbatch.simulate.hardware.gpu_cost import GpuCost
from hogbatch.simulate.rehearsal.cores import Noise
from hogbatch.simulate.rehearsal.replica import RehearsedTrainer, SimulatedDevice
from hogbatch.simulate.worker import SimulatedEngine, SimulatedWorker
from hogbatch.wire.messages import Failed, Lease, Ready, Welcome
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.merge_interval import MergeCost
from hogbatch.workers.exchange import Pause, Steps
from hogbatch.workers.pipeline import Pipeline, choose_exchange


class RehearsedGpu(SimulatedEngine):
    """Leases on one simulated device.

    `assign` returns the assignment of the worker that a Welcome admits. `noise` varies all times at
    random. With `shares_core`, the device is the host, and its training thread and its exchange
    thread take turns on one core.
    """

    device = "gpu"

    def __init__(
        self,
        label: str,
        cost: GpuCost,
        assign: Callable[[Welcome], Assignment],
        noise: Noise,
        *,
        shares_core: bool = False,
    ) -> None:
        self.label = label
        self._cost, self._assign, self._noise = cost, assign, noise
        self._shares_core = shares_core
        self._runs_ahead = label != "gpu:host"
        self._jobs: SimpleQueue[Lease] = SimpleQueue()
        self._waiting: dict[Steps, SimpleQueue[Any]] = {}  # threads that wait for a queue

    def prepare(self, welcome: Welcome, host: SimulatedWorker) -> tuple[float, Ready]:
        self._host, assignment = host, self._assign(welcome)
        times = self._cost, self._noise
        self._device = SimulatedDevice(host, *times, shares_core=self._shares_core)
        trainer = RehearsedTrainer(self._device, assignment)
        self._train, self._replica = assignment.train, trainer.replica
        profile = self._cost.profile(assignment.train.rows)
        interval = choose_exchange(
            trainer, assignment, profile, self._merge_cost, densify=self._cost.densify
        )
        pipeline = Pipeline(self._jobs, trainer, assignment, interval, self._post)
        for steps in (pipeline.steps(), pipeline.exchange.steps()):
            self._run(steps)
        return 0.0, Ready(profile, merge=interval.cost)

    def submit(self, lease: Lease) -> None:
        self._jobs.put(lease)
        self._wake()

    def _merge_cost(self, rows: int) -> MergeCost:
        """The cost of merging an interval over the first `rows` rows, as a worker measures it."""
        inputs, touched = self._train.inputs, None
        if self._replica.touched is not None:
            touched = len(np.unique(inputs.indices[: inputs.indptr[rows]]))
        times = self._cost.merge(touched)
        return MergeCost(times.blocking, times.merge)

    # The threads ----------------------------------------------------------------------------------

    def _run(self, steps: Steps) -> None:
        """Run a thread until it waits for a later time or for a queue."""
        try:
            for step in steps:
                if isinstance(step, SimpleQueue):
                    if step.empty():
                        self._waiting[steps] = step
                        return
                elif (time := self._end_of(step)) > self._host.now:
                    self._host.later(time - self._host.now, partial(self._resume, steps))
                    return
        except HogbatchError as error:
            self._post(error)

    def _resume(self, steps: Steps) -> None:
        self._run(steps)
        self._wake()

    def _wake(self) -> None:
        """Run each thread that waits for a queue which is no longer empty."""
        while ready := [steps for steps, queue in self._waiting.items() if not queue.empty()]:
            del self._waiting[ready[0]]
            self._run(ready[0])

    def _end_of(self, step: Any) -> float:
        """The simulated time at which a thread goes on after a step other than a queue."""
        now, times, transfers = self._host.now, self._device.times, self._replica.transfers
        match step:
            case Pause.MERGE:
                transfers.add(0, times.merge)
                return now + times.merge
            case Pause.COMPLETE:
                return self._device.free
            case Pause.QUEUED:
                return now if self._runs_ahead else self._device.free
        return float(step)  # an event

    def _post(self, message: Any) -> None:
        if isinstance(message, Exception):
            message = Failed(f"{type(message).__name__}: {message}"[:1000])
        self._host.post(message)
