"""A GPU worker: large dense batches on a replica, whose change is merged into the shared model.

    python -m workers.gpu RUN_DIR --device 0        a GPU, through CuPy
    python -m workers.gpu RUN_DIR --device host     the same worker on NumPy, to rehearse

Two threads share the device, each with a stream of its own:

    training   interval 1 │ interval 2    │ interval 3    │ …     (batches on the replica)
                        take 1          take 2          take 3
    exchange              │ merge 1 fetch │ merge 2 fetch │ …     (with the shared parameters)

Its optimizer slots stay on the device: only parameters are merged.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from hogbatch.errors import DeviceError, HogbatchError
from hogbatch.kernels.contract import ROWS, TOTALS
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.kernels.gpu.device import Device, HostDevice
from hogbatch.model.footprint import expect_memory, gpu_worker
from hogbatch.store.merge import batches_between_merges
from hogbatch.store.staleness import Damping
from hogbatch.wire.messages import Work
from workers.exchange import Exchange, Interval, Tally
from workers.profile import profile
from workers.report import MergeReport, report
from workers.session import Assignment, Post, Profile, run_sizes
from workers.start import parser, run
from workers.trainer import UNSHUFFLED, Trainer

WIDE = 0.5  # share of a sparse layer's rows; where a batch touches fewer, only those travel


class GpuEngine:
    """Runs leases on one device. `make_device` is given the precision of products."""

    device = "gpu"
    threads = 1

    def __init__(self, label: str, make_device: Callable[[str], Device]) -> None:
        self.label = label
        self._make_device = make_device
        self._jobs: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._rollbacks = 0
        self._prepared: queue.SimpleQueue[Profile | BaseException] = queue.SimpleQueue()

    def prepare(self, assignment: Assignment, post: Post) -> Profile:
        self._assignment, self._post = assignment, post
        threading.Thread(target=self._serve, daemon=True).start()
        profile = self._prepared.get()
        if isinstance(profile, BaseException):
            raise profile
        return profile

    def submit(self, work: Work) -> None:
        self._jobs.put(work)

    # The training thread --------------------------------------------------------------------

    def _serve(self) -> None:
        """The training thread's life."""
        told: Callable[[BaseException], None] = self._prepared.put
        try:
            device = self._make_device(self._assignment.welcome.precision)
            try:
                self._set_up(device)
                self._prepared.put(self._measured.profile)
                told = self._post
                self._train()
            except device.failures as failure:
                raise DeviceError(f"{device.name} has failed: {failure}") from failure
        except BaseException as error:
            told(error)

    def _set_up(self, device: Device) -> None:
        device.enter()
        assignment, welcome = self._assignment, self._assignment.welcome
        on_host = isinstance(device, HostDevice)
        expect_memory(gpu_worker(run_sizes(assignment), on_host=on_host), f"worker {self.label}")
        self._trainer = Trainer(device, assignment)
        self._measured = profile(self._trainer, assignment)
        self._replica = self._trainer.replica
        self._travel()
        damping = Damping(welcome.staleness_damping)
        self._exchange = Exchange(self._replica, assignment.model, assignment.fence, damping)
        self._exchange.start(self._post)

    def _travel(self) -> None:
        """Settle what of the model travels at a merge, and see how long that takes."""
        batch = self._measured.profile[-1][0]
        self._trainer.follow(UNSHUFFLED)
        if not (self._is_wide(batch) and self._trainer.travel_by_rows()):
            self._replica.travel_whole()
        self._merging = self._replica.merging_seconds(self._trainer.rows(0, batch))
        logging.info(
            "batches of (rows, seconds): %s; a merge takes %.2f ms, and %.2f ms beside training: "
            "every %d batches of %d rows",
            self._measured.profile,
            *(1e3 * seconds for seconds in self._merging),
            *(self._every(batch), batch),
        )

    def _is_wide(self, batch: int) -> bool:
        """Whether a batch touches so few rows of a sparse layer that only those should travel."""
        train = self._assignment.train
        if not train.sparse or self._measured.densify:
            return False
        touched = np.unique(train.inputs.indices[: train.inputs.indptr[batch]])
        return len(touched) < WIDE * train.features

    def _every(self, batch: int) -> int:
        """Batches between two merges."""
        chosen = self._assignment.welcome.merge_every
        return chosen or batches_between_merges(self._measured.seconds(batch), *self._merging)

    def _train(self) -> None:
        """Train interval after interval; what one has changed is exchanged during the next."""
        trained: Interval | None = None  # its change has not been taken
        for interval in self._intervals():
            afresh = trained is None or self._end(trained, interval)
            trained = None
            if interval is None:  # what is under way must not wait for more
                self._settle()
            elif self._run(interval, afresh):
                trained = interval

    def _intervals(self) -> Iterator[Interval | None]:
        """The intervals of all leases; None whenever nothing is there to be trained at once."""
        while True:
            if self._jobs.empty():
                yield None
            work = self._jobs.get()
            if work.rollbacks != self._rollbacks:
                yield None
                self._rollbacks = work.rollbacks
                self._replica.forget()
            if work.task == "evaluate":
                yield None
                self._evaluate(work)
            elif self._has_room(work):
                yield from self._cut(work)

    def _cut(self, work: Work) -> Iterator[Interval]:
        tally = Tally(work, time.perf_counter(), work.stop - work.start)
        together = work.batch_size * self._every(work.batch_size)
        for start in range(work.start, work.stop, together):
            if not tally.too_large:
                stop = min(start + together, work.stop)
                yield Interval(tally, start, stop, stop == work.stop)

    def _run(self, interval: Interval, afresh: bool) -> bool:
        """Train the replica, pulled anew if `afresh`; False if there was too little memory."""
        work, trainer = interval.tally.work, self._trainer
        trainer.follow(work.epoch)
        if afresh:
            self._exchange.pulling()
            self._replica.begin(trainer.rows(interval.start, interval.stop))
        try:
            trainer.train(interval.start, interval.stop, work.batch_size, work.learning_rate)
        except trainer.device.out_of_memory as error:
            _note(work, error)
            self._exhausted(interval)
            return False
        return True

    def _end(self, trained: Interval, upcoming: Interval | None) -> bool:
        """Hand the change of `trained` over; whether the next interval has to pull anew."""
        if not self._exchange.wait():  # it started from what was refused: the same is in it
            self._replica.forget()
            self._exchange.give_up(trained)
            return True
        rows = None
        if upcoming is not None:
            self._trainer.follow(upcoming.tally.work.epoch)
            rows = self._trainer.rows(upcoming.start, upcoming.stop)
        self._replica.rejoin(rows)
        self._exchange.submit(trained, self._replica.take())
        return upcoming is None

    def _settle(self) -> None:
        """Return when nothing is on its way to the shared parameters."""
        if not self._exchange.wait():
            self._replica.forget()

    def _has_room(self, work: Work) -> bool:
        """Make room for its batches; where there is too little memory it goes back at once."""
        device = self._trainer.device
        try:
            self._trainer.reserve(work.batch_size)
        except device.out_of_memory as error:
            _note(work, error)
            merge = MergeReport(rows=0, too_large=work.batch_size)
            self._post(report(work, np.zeros(TOTALS), 0.0, merge))
            self._trainer.release()
            return False
        return True

    def _exhausted(self, interval: Interval) -> None:
        """Memory ran out in the middle: keep what is merged, give the rest of the lease back."""
        tally = interval.tally
        self._replica.drop()
        self._settle()
        tally.rows, tally.too_large = interval.start - tally.work.start, tally.work.batch_size
        self._exchange.give_up(Interval(tally, interval.start, interval.start, last=True))
        self._trainer.release()

    def _evaluate(self, work: Work) -> None:
        began = time.perf_counter()
        self._replica.refresh()
        totals = self._trainer.evaluate(work)
        totals[ROWS] = work.stop - work.start
        self._post(report(work, totals, time.perf_counter() - began))


def _note(work: Work, error: BaseException) -> None:
    """Log that its batches do not fit; HogbatchError if they cannot be any smaller."""
    if work.batch_size == 1:
        raise HogbatchError(f"not even a batch of one row fits: {error}") from None
    logging.warning("no memory for batches of %d rows: %s", work.batch_size, error)


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
        run(given.run_dir, GpuEngine("gpu:host", lambda precision: HostDevice()), given.launched)
    elif given.device.isdecimal():
        ordinal = int(given.device)
        engine = GpuEngine(f"gpu:{ordinal}", partial(CudaDevice, ordinal))
        run(given.run_dir, engine, given.launched)
    arguments.error(f"--device must be a number or host; got {given.device!r}")


if __name__ == "__main__":
    main()
