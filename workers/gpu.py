"""A GPU worker: large dense batches on a replica, whose change is merged into the shared model.

    python -m workers.gpu RUN_DIR --device 0        a GPU, through CuPy
    python -m workers.gpu RUN_DIR --device host     the same worker on NumPy, to rehearse

Its optimizer slots stay on the device: only parameters are merged.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, Labels
from hogbatch.errors import HogbatchError
from hogbatch.kernels.contract import (
    LOSSES,
    OPTIMIZERS,
    ROWS,
    SKIPPED,
    TOTALS,
    UPDATES,
    Hyper,
)
from hogbatch.kernels.gpu.device import CudaDevice, Device, HostDevice
from hogbatch.kernels.network import Network, corrected
from hogbatch.optim import OPTIMIZERS as SPECS
from hogbatch.store.merge import MERGES
from hogbatch.store.model import SharedModel
from hogbatch.wire.messages import Failed, Work
from workers.report import report
from workers.session import Assignment, Post, Profile
from workers.start import parser, run

SMALLEST_MEASURED = 16  # rows; the ladder doubles from here
LONGEST_MEASURED_S = 0.25  # a batch that takes longer ends the ladder
MEASUREMENTS = 5  # of each size, the fastest counts: noise only ever slows down
MOST_REFUSED = 3  # merges in a row that are not finite; then the rows are for another worker
GAIN = 1.02  # and so does doubling that speeds rows up by less, twice in a row


class Replica:
    """The worker's own copy of the parameters, on the device."""

    def __init__(self, device: Device, assignment: Assignment) -> None:
        self._device = device
        self._shared: SharedModel = assignment.model
        size = self._shared.params.size
        slots = SPECS[assignment.welcome.optimizer.name].slots
        self.params = device.empty(size, np.float32)
        self._slots = [device.zeros(size if slots > n else 0, np.float32) for n in range(2)]
        plan = assignment.network.plan()
        self.network = Network(device.kernels, device.xp, plan, self.params, *self._slots)
        self.steps = 0  # batches that the slots have seen
        self._before = np.empty(size, np.float32)
        self._after = np.empty(size, np.float32)
        self._merge = MERGES[assignment.welcome.merge]

    def pull(self) -> None:
        """replica = shared model, as it is at this moment."""
        np.copyto(self._before, self._shared.params)
        self._device.copy_into(self.params, self._before)

    def forget(self) -> None:
        """Start over with the optimizer's slots."""
        for slot in self._slots:
            slot[:] = 0
        self.steps = 0

    def merge(self) -> bool:
        """Let the change since `pull` join the shared model; False if it is not finite."""
        self._device.to_host(self.params, self._after)
        return self._merge(self._shared.params, self._before, self._after)


class GpuEngine:
    """Runs leases on one device, from one thread that alone talks to it."""

    device = "gpu"
    threads = 1

    def __init__(self, label: str, make_device: Callable[[], Device]) -> None:
        self.label = label
        self._make_device = make_device
        self._jobs: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._prepared: queue.SimpleQueue[Profile | Exception] = queue.SimpleQueue()

    def prepare(self, assignment: Assignment, post: Post) -> Profile:
        self._assignment, self._post = assignment, post
        threading.Thread(target=self._serve, daemon=True).start()
        profile = self._prepared.get()
        if isinstance(profile, Exception):
            raise profile
        return profile

    def submit(self, work: Work) -> None:
        self._jobs.put(work)

    def _serve(self) -> None:
        """The device thread's life."""
        try:
            self._set_up()
            self._prepared.put(tuple(self._measure()))
        except Exception as error:
            self._prepared.put(error)
            return
        while True:
            work = self._jobs.get()
            began = time.perf_counter()
            try:
                totals = self._evaluate(work) if work.task == "evaluate" else self._train(work)
            except Exception as error:
                self._post(Failed(f"{type(error).__name__}: {error}"[:1000]))
                return
            self._post(report(work, totals, time.perf_counter() - began))

    def _set_up(self) -> None:
        assignment = self._assignment
        self._device = self._make_device()
        self._loss = LOSSES[assignment.network.loss]
        self._optimizer = OPTIMIZERS[assignment.welcome.optimizer.name]
        self._refused = 0  # merges in a row
        self._replica = Replica(self._device, assignment)
        self._train_set = self._cached(assignment.train.inputs, assignment.train.labels)
        if assignment.test is not None:
            self._test_set = self._cached(assignment.test.inputs, assignment.test.labels)

    def _cached(self, inputs: Inputs, labels: Labels) -> tuple[Inputs, Labels]:
        """A set, copied to the device once."""
        move = self._device.to_device
        return Inputs(*[move(each) for each in inputs]), Labels(*[move(each) for each in labels])

    def _measure(self) -> Iterator[tuple[int, float]]:
        """Rows and seconds of batches of doubling size; nothing of it reaches the shared model."""
        rows = np.arange(self._assignment.train.rows)
        size, best, slow = SMALLEST_MEASURED, 0.0, 0
        self._replica.pull()
        while slow < 2:
            part = self._device.to_device(rows[:size])
            seconds = min(self._time_batch(part) for _ in range(MEASUREMENTS))
            yield len(part), seconds
            slow = slow + 1 if len(part) / seconds < GAIN * best else 0
            best = max(best, len(part) / seconds)
            if seconds > LONGEST_MEASURED_S or size >= len(rows):
                break
            size *= 2
        self._replica.forget()

    def _time_batch(self, rows: Any) -> float:
        began = time.perf_counter()
        self._step(rows, 0.0, self._device.zeros(TOTALS, np.float64))
        self._device.synchronize()
        return time.perf_counter() - began

    def _step(self, rows: Any, rate: float, totals: Any) -> None:
        """One batch on the replica."""
        settings = self._assignment.welcome.optimizer
        hyper = Hyper(rate, settings.l2, settings.momentum, settings.beta2, settings.epsilon)
        inputs, labels = self._train_set
        self._replica.steps += 1
        exact = corrected(self._optimizer, hyper, self._replica.steps)
        self._replica.network.train_batch(
            inputs, labels, rows, self._loss, self._optimizer, exact, totals
        )

    def _train(self, work: Work) -> NDArray[np.float64]:
        """Train the lease: pull, `merge_every` batches, merge, and so on."""
        order = self._assignment.orders.of(work.epoch)[work.start : work.stop]
        rows = self._device.to_device(np.ascontiguousarray(order))
        together = work.batch_size * self._assignment.welcome.merge_every
        totals = np.zeros(TOTALS)
        for start in range(0, len(rows), together):
            if self._assignment.fence[0] != work.fence:
                break
            totals += self._train_and_merge(work, rows[start : start + together])
        return totals

    def _train_and_merge(self, work: Work, rows: Any) -> NDArray[np.float64]:
        """One merge: an update of the shared model, or rows that count as skipped."""
        summed = self._device.zeros(TOTALS, np.float64)
        self._replica.pull()
        for start in range(0, len(rows), work.batch_size):
            self._step(rows[start : start + work.batch_size], work.learning_rate, summed)
        totals = np.zeros(TOTALS)
        self._device.to_host(summed, totals)
        if self._assignment.fence[0] != work.fence:
            return np.zeros(TOTALS)
        if not self._replica.merge():
            self._refuse()
            totals[:] = 0
            totals[ROWS] = totals[SKIPPED] = len(rows)
            return totals
        self._refused = 0
        totals[UPDATES] = 1  # the shared step counter stays: it belongs to the shared slots
        return totals

    def _refuse(self) -> None:
        """A delta was not finite: its cause must not outlive it, nor may it become a habit."""
        self._replica.forget()
        self._refused += 1
        if self._refused >= MOST_REFUSED:
            raise HogbatchError(f"{self._refused} merges in a row were not finite")

    def _evaluate(self, work: Work) -> NDArray[np.float64]:
        summed = self._device.zeros(TOTALS, np.float64)
        rows = self._device.to_device(np.arange(work.start, work.stop))
        inputs, labels = self._test_set
        self._replica.pull()
        for start in range(0, len(rows), work.batch_size):
            part = rows[start : start + work.batch_size]
            self._replica.network.evaluate_batch(inputs, labels, part, self._loss, summed)
        totals = np.zeros(TOTALS)
        self._device.to_host(summed, totals)
        return totals


def main() -> None:
    """Attach a GPU worker."""
    arguments = parser("gpu", "Attach a GPU worker to a running job on this server.")
    arguments.add_argument(
        "--device",
        default="0",
        metavar="N|host",
        help="number of the GPU, or host: NumPy in the role of a GPU (default: 0)",
    )
    given = arguments.parse_args()
    if given.device == "host":
        run(given.run_dir, GpuEngine("gpu:host", HostDevice), given.launched)
    elif given.device.isdecimal():
        ordinal = int(given.device)
        engine = GpuEngine(f"gpu:{ordinal}", lambda: CudaDevice(ordinal))
        run(given.run_dir, engine, given.launched)
    arguments.error(f"--device must be a number or host; got {given.device!r}")


if __name__ == "__main__":
    main()
