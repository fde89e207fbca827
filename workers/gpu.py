"""A GPU worker: trains a replica with large batches and merges its changes into the shared model.

    hogbatch worker gpu RUN_DIR --device 0        a GPU, through CuPy
    hogbatch worker gpu RUN_DIR --device host     the same worker on NumPy, for testing

Two threads use the device, each with its own stream:

    training   interval 1 │ interval 2    │ interval 3    │ …     (batches on the replica)
                    hand over 1     hand over 2     hand over 3
    exchange              │ merge 1 fetch │ merge 2 fetch │ …     (with the shared parameters)

Optimizer slots stay on the device, except Adagrad's of a sparse input layer: see
`hogbatch.workers.replica`.
"""

import logging
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial

from hogbatch.errors import DeviceError, HogbatchError
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.kernels.gpu.device import Device, HostDevice, memory_shortage
from hogbatch.model.footprint import expect_memory, gpu_worker
from hogbatch.wire.messages import Lease, Ready
from hogbatch.workers.compute.assignment import Assignment, run_sizes
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.merge_interval import MergeCost, MergeInterval
from hogbatch.workers.exchange import run_steps
from hogbatch.workers.noise import ReplicaNoiseMeter
from hogbatch.workers.pipeline import Pipeline, choose_exchange
from hogbatch.workers.profile import profile
from hogbatch.workers.session import Post
from hogbatch.workers.start import parser, run
from hogbatch.workers.trainer import UNSHUFFLED, Trainer

# The time after which a thread gives Python's lock to one that waits for it. With the default of
# 5 ms, the exchange thread would delay launches of batches for many intervals.
SWITCH_S = 1e-4


class GpuEngine:
    """Runs leases on one device; `make_device` takes the precision of matrix products."""

    device = "gpu"
    threads = 1

    def __init__(self, label: str, make_device: Callable[[str], Device]) -> None:
        self.label = label
        self._make_device = make_device
        self._jobs: queue.SimpleQueue[Lease] = queue.SimpleQueue()
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
        report_error: Callable[[BaseException], None] = self._prepared.put
        try:
            device = self._make_device(self._assignment.welcome.precision)
            try:
                if shortage := memory_shortage(device, partial(self._set_up, device)):
                    raise HogbatchError(
                        f"{device.name} has too little memory for this network: {shortage}; "
                        "free memory there, or train without this worker"
                    )
                self._prepared.put(self._measured.profile)
                report_error = self._post
                run_steps(self._pipeline.steps())
            except device.failures as failure:
                raise DeviceError(f"{device.name} has failed: {failure}") from failure
        except BaseException as error:
            report_error(error)

    def _set_up(self, device: Device) -> None:
        device.enter()
        assignment = self._assignment
        on_host = isinstance(device, HostDevice)
        expect_memory(gpu_worker(run_sizes(assignment), on_host=on_host), f"worker {self.label}")
        self._trainer = Trainer(device, assignment)
        self._measured = profile(self._trainer, assignment)
        self._replica = self._trainer.replica
        self._merge_interval = self._choose_exchange()
        rest = assignment, self._merge_interval, self._post
        self._pipeline = Pipeline(self._jobs, self._trainer, *rest)
        self._pipeline.exchange.start(ReplicaNoiseMeter(assignment, self._replica))

    def _choose_exchange(self) -> MergeInterval:
        """Choose which parameters a merge transfers, and measure how long it takes."""
        profile, batch = self._measured.profile, self._measured.profile[-1][0]
        self._trainer.follow(UNSHUFFLED)
        interval = choose_exchange(
            self._trainer,
            self._assignment,
            profile,
            self._merge_cost,
            densify=self._measured.densify,
        )
        logging.info(
            "measured batches (rows, seconds): %s; merging every %d batches of %d rows",
            profile,
            interval.batches(batch),
            batch,
        )
        return interval

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


def main() -> None:
    arguments = parser("gpu", "Attach a GPU worker to a coordinator running on this server.")
    arguments.add_argument(
        "--device",
        default="0",
        metavar="N|host",
        help="number of the GPU, or host: NumPy computation in place of a GPU (default: 0)",
    )
    options = arguments.parse_args()
    sys.setswitchinterval(SWITCH_S)
    if options.device == "host":
        engine = GpuEngine("gpu:host", lambda precision: HostDevice())
    elif options.device.isdecimal():
        ordinal = int(options.device)
        engine = GpuEngine(f"gpu:{ordinal}", partial(CudaDevice, ordinal))
    else:
        arguments.error(f"--device must be a number or host; got {options.device!r}")
    run(options.run_dir, engine, options.launched)


if __name__ == "__main__":
    main()
