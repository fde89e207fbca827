"""A GPU worker: trains a replica with large batches and merges its changes into the shared model.

    hogbatch worker gpu RUN_DIR --device 0        a GPU, through CuPy
    hogbatch worker gpu RUN_DIR --device host     the same worker on NumPy, for testing

Two threads use the device, each with its own stream:

    training   interval 1 │ interval 2    │ interval 3    │ …     (batches on the replica)
                        take 1          take 2          take 3
    exchange              │ merge 1 fetch │ merge 2 fetch │ …     (with the shared parameters)

Optimizer slots stay on the device, except Adagrad's of a sparse input layer: see
`hogbatch.workers.replica`.
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
from hogbatch.kernels.gpu.device import Device, HostDevice, memory_shortage
from hogbatch.model.footprint import expect_memory, gpu_worker
from hogbatch.store.staleness import Damping
from hogbatch.wire.messages import Lease, Ready
from hogbatch.workers.compute.assignment import Assignment, run_sizes
from hogbatch.workers.compute.device_profile import Profile, first_merge_interval, touches_few_rows
from hogbatch.workers.compute.merge_interval import IntervalTimes, MergeCost
from hogbatch.workers.compute.report import MergeReport, report
from hogbatch.workers.exchange import Interval, IntervalEvents, LeaseProgress, ReplicaExchange
from hogbatch.workers.profile import discard, profile
from hogbatch.workers.session import Post
from hogbatch.workers.speed_check import SpeedCheck
from hogbatch.workers.start import parser, run
from hogbatch.workers.trainer import UNSHUFFLED, Trainer


class GpuEngine:
    """Runs leases on one device; `make_device` takes the precision of matrix products."""

    device = "gpu"
    threads = 1

    def __init__(self, label: str, make_device: Callable[[str], Device]) -> None:
        self.label = label
        self._make_device = make_device
        self._jobs: queue.SimpleQueue[Lease] = queue.SimpleQueue()
        self._rollbacks = 0
        self._prepared: queue.SimpleQueue[Profile | BaseException] = queue.SimpleQueue()

    def prepare(self, assignment: Assignment, post: Post) -> Ready:
        self._assignment, self._post = assignment, post
        threading.Thread(target=self._serve, daemon=True).start()
        profile = self._prepared.get()
        if isinstance(profile, BaseException):
            raise profile
        return Ready(profile, merge=self._merge_interval.cost)

    def submit(self, lease: Lease) -> None:
        self._jobs.put(lease)

    # The training thread --------------------------------------------------------------------

    def _serve(self) -> None:
        """Run the training thread."""
        report_error: Callable[[BaseException], None] = self._prepared.put
        try:
            device = self._make_device(self._assignment.welcome.precision)
            try:
                self._prepare_device(device)
                self._prepared.put(self._measured.profile)
                report_error = self._post
                self._train()
            except device.failures as failure:
                raise DeviceError(f"{device.name} has failed: {failure}") from failure
        except BaseException as error:
            report_error(error)

    def _prepare_device(self, device: Device) -> None:
        """Set up; HogbatchError if the memory is too small for the model and its replica."""
        shortage = memory_shortage(device, partial(self._set_up, device))
        if shortage is not None:
            raise HogbatchError(
                f"{device.name} has too little memory for this network: {shortage}; "
                "free memory there, or train without this worker"
            )

    def _set_up(self, device: Device) -> None:
        device.enter()
        assignment, welcome = self._assignment, self._assignment.welcome
        on_host = isinstance(device, HostDevice)
        expect_memory(gpu_worker(run_sizes(assignment), on_host=on_host), f"worker {self.label}")
        self._trainer = Trainer(device, assignment)
        self._measured = profile(self._trainer, assignment)
        self._replica = self._trainer.replica
        self._speed_check: SpeedCheck | None = SpeedCheck(self._measured.profile)
        self._choose_exchange()
        damping = Damping(welcome.staleness_damping)
        self._exchange = ReplicaExchange(
            self._replica, assignment.model, assignment.fence, damping, self._observe
        )
        self._exchange.start(self._post)

    def _choose_exchange(self) -> None:
        """Choose which parameters a merge transfers, and measure how long it takes."""
        batch = self._measured.profile[-1][0]
        self._trainer.follow(UNSHUFFLED)
        by_rows = self._touches_few_rows(batch) and self._trainer.exchange_touched_rows()
        if not by_rows:
            self._replica.exchange_all()
        self._merge_interval = first_merge_interval(
            self._assignment.welcome.merge_every,
            self._measured.profile,
            self._assignment.train.rows,
            self._merge_cost,
            by_rows=by_rows,
        )
        logging.info(
            "measured batches (rows, seconds): %s; merging every %d batches of %d rows",
            self._measured.profile,
            self._merge_interval.batches(batch),
            batch,
        )

    def _merge_cost(self, rows: int) -> MergeCost:
        """Measure merging an interval over the first `rows` rows."""
        cost = self._replica.measure_merge(self._trainer.rows(0, rows))
        logging.info(
            "a merge of %d rows blocks training for %.2f ms and takes %.2f ms in the background",
            rows,
            1e3 * cost.blocking,
            1e3 * cost.background,
        )
        return cost

    def _touches_few_rows(self, batch: int) -> bool:
        """Return whether a batch touches so few rows of a sparse layer that only those are sent."""
        train = self._assignment.train
        return train.sparse and not self._measured.densify and touches_few_rows(train, batch)

    def _observe(self, times: IntervalTimes) -> None:
        """Use the times of an interval for the next ones."""
        self._merge_interval.observe(times)
        if self._speed_check is None or (found := self._speed_check.observe(times)) is None:
            return
        self._speed_check = None  # the next start measures again, this one does not
        discard(self._trainer, self._assignment, self._measured)
        logging.info(
            "batches of %d rows take %.3g ms in training, but took %.3g ms when they were "
            "measured: the next start measures again",
            found.rows,
            1e3 * found.training,
            1e3 * found.measured,
        )

    def _train(self) -> None:
        """Train all intervals; the change of one is merged while the next one is trained."""
        trained: Interval | None = None  # the interval whose change has not been taken yet
        for interval in self._intervals():
            pull_needed = trained is None or self._hand_over(trained, interval)
            trained = None
            if interval is None:  # nothing to train: the pending merge must complete now
                self._wait_for_exchange()
            elif self._run(interval, pull_needed):
                trained = interval

    def _intervals(self) -> Iterator[Interval | None]:
        """The intervals of all leases; None whenever there is nothing to train immediately."""
        while True:
            if self._jobs.empty():
                yield None
            lease = self._jobs.get()
            if lease.rollbacks != self._rollbacks:
                yield None
                self._rollbacks = lease.rollbacks
                self._replica.reset()
            if lease.task == "evaluate":
                yield None
                self._evaluate(lease)
            elif self._reserve(lease):
                yield from self._split(lease)

    def _split(self, lease: Lease) -> Iterator[Interval]:
        """The intervals of one lease, until memory runs out."""
        progress = LeaseProgress(lease, time.perf_counter(), lease.stop - lease.start)
        every = self._merge_interval.batches(lease.batch_size, lease.merge_every)
        interval_rows = lease.batch_size * every
        for start in range(lease.start, lease.stop, interval_rows):
            if not progress.too_large:
                stop = min(start + interval_rows, lease.stop)
                yield Interval(progress, start, stop, stop == lease.stop)

    def _run(self, interval: Interval, pull_needed: bool) -> bool:
        """Train the replica, pulled first if `pull_needed`; return False if memory ran out."""
        lease, trainer = interval.progress.lease, self._trainer
        trainer.follow(lease.epoch)
        if pull_needed:
            self._exchange.before_pull()
            self._replica.begin(trainer.rows(interval.start, interval.stop))
            self._begun = trainer.device.record_event()
        batches = interval.start, interval.stop, lease.batch_size, lease.learning_rate
        shortage = memory_shortage(trainer.device, partial(trainer.train, *batches))
        if shortage is not None:
            _log_out_of_memory(lease, shortage)
            self._return_rest(interval)
            return False
        self._trained = trainer.device.record_event()
        inputs = trainer.input_transfers()
        interval.progress.inputs.add(inputs.bytes, inputs.seconds)
        return True

    def _hand_over(self, trained: Interval, upcoming: Interval | None) -> bool:
        """Submit the change of `trained`; return whether the next interval has to pull first."""
        rows = None
        if upcoming is not None:
            self._trainer.follow(upcoming.progress.lease.epoch)
            rows = self._trainer.rows(upcoming.start, upcoming.stop)
        record_event = self._trainer.device.record_event
        ended = record_event()
        if not self._exchange.wait():  # `trained` started from the refused parameters
            self._replica.reset()
            self._exchange.skip(trained)
            return True
        ready = record_event()
        self._replica.rejoin(rows)
        taken = self._replica.take()
        events = IntervalEvents(self._begun, self._trained, ended, ready, taken)
        self._exchange.submit(trained, events)
        self._begun = taken
        return upcoming is None

    def _wait_for_exchange(self) -> None:
        """Wait until no merge is pending."""
        if not self._exchange.wait():
            self._replica.reset()

    def _reserve(self, lease: Lease) -> bool:
        """Allocate for the batches of `lease`; return it as too large if memory runs out."""
        reserve = partial(self._trainer.reserve, lease.batch_size)
        shortage = memory_shortage(self._trainer.device, reserve)
        if shortage is not None:
            _log_out_of_memory(lease, shortage)
            merge = MergeReport(rows=0, too_large=lease.batch_size)
            self._post(report(lease, np.zeros(TOTALS), 0.0, merge))
            self._trainer.release()
        return shortage is None

    def _return_rest(self, interval: Interval) -> None:
        """Keep what has been merged and return the rest of the lease, because memory ran out."""
        progress = interval.progress
        self._replica.discard()
        self._wait_for_exchange()
        progress.rows, progress.too_large = (
            interval.start - progress.lease.start,
            progress.lease.batch_size,
        )
        self._exchange.skip(Interval(progress, interval.start, interval.start, last=True))
        self._trainer.release()

    def _evaluate(self, lease: Lease) -> None:
        began = time.perf_counter()
        self._replica.refresh()
        totals = self._trainer.evaluate(lease)
        totals[ROWS] = lease.stop - lease.start
        seconds = time.perf_counter() - began
        pull = self._replica.transfers.take()
        merge = MergeReport(transferred=pull.bytes, transfer_seconds=pull.seconds)
        self._post(report(lease, totals, seconds, merge))


def _log_out_of_memory(lease: Lease, shortage: str) -> None:
    """Log that the batches do not fit; raise HogbatchError if they cannot be smaller."""
    if lease.batch_size == 1:
        raise HogbatchError(f"a batch of one row does not fit into memory: {shortage}")
    logging.warning("out of memory with batches of %d rows: %s", lease.batch_size, shortage)


def main() -> None:
    """Attach a GPU worker."""
    arguments = parser("gpu", "Attach a GPU worker to a coordinator running on this server.")
    arguments.add_argument(
        "--device",
        default="0",
        metavar="N|host",
        help="number of the GPU, or host: NumPy computation in place of a GPU (default: 0)",
    )
    options = arguments.parse_args()
    if options.device == "host":
        run(
            options.run_dir, GpuEngine("gpu:host", lambda precision: HostDevice()), options.launched
        )
    elif options.device.isdecimal():
        ordinal = int(options.device)
        engine = GpuEngine(f"gpu:{ordinal}", partial(CudaDevice, ordinal))
        run(options.run_dir, engine, options.launched)
    arguments.error(f"--device must be a number or host; got {options.device!r}")


if __name__ == "__main__":
    main()
