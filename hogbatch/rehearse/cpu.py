"""A rehearsed CPU worker: real gradients, at the simulated times of a described CPU.

The counterpart of `workers.cpu`. A thread reads and writes a layer of the shared model when a real
thread computes it, or reads all layers when its batch begins and writes them when it ends.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hogbatch.compute.assignment import Assignment
from hogbatch.compute.ranges import cut
from hogbatch.compute.report import report
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, UPDATES, Hyper, add_totals
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.rehearse.concurrent_model import ConcurrentModel, StagedBatch, Thread
from hogbatch.rehearse.cores import Action, Cores, WorkerCores
from hogbatch.rehearse.hashed import RehearsedTables
from hogbatch.rehearse.noise import Noise
from hogbatch.rehearse.stages import next_half, next_pass
from hogbatch.servers.cpu_cost import CpuCost
from hogbatch.simulate.engine import Host, Prepared
from hogbatch.wire.messages import Welcome, Work


@dataclass(slots=True)
class LeaseSums:
    """The sums of a lease, while some of its ranges are still being computed."""

    work: Work
    remaining: int  # ranges
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))
    seconds: float = 0.0


@dataclass(slots=True)
class Range:
    """Rows [start, stop) of a lease, for one thread; `start` moves forward batch by batch."""

    lease: LeaseSums
    start: int
    stop: int
    began: float = 0.0
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))


@dataclass(slots=True)
class _SimulatedThread:
    number: int
    own: Thread
    rollbacks: int = 0


@dataclass(slots=True)
class _BatchInFlight:
    batch: StagedBatch
    rows: int
    factor: float  # of its seconds
    elapsed: float = 0.0  # seconds of a core's time
    seconds: Sequence[float] = ()  # of its stages
    active: int = -1  # outputs of a hashed layer for which `seconds` was computed


class RehearsedCpu:
    """Leases on `threads` simulated threads.

    `assign` returns what a worker with this Welcome works on; all workers share `model` and
    `cores`, on which this worker's threads have the numbers from `first` on, and the thread that
    builds its hash tables the number `first` + `builder`.
    """

    device: Literal["cpu"] = "cpu"

    def __init__(
        self,
        threads: int,
        cost: CpuCost,
        model: ConcurrentModel,
        assign: Callable[[Welcome], Assignment],
        noise: Noise,
        cores: Cores,
        first: int,
        builder: int,
    ) -> None:
        self._server_cores, self._first, self._builder = cores, first, builder
        self.threads = threads
        self.label = f"cpu:{threads}"
        self._cost, self._model, self._assign, self._noise = cost, model, assign, noise
        self._ranges: deque[Range] = deque()
        self._idle: deque[_SimulatedThread] = deque()
        self._hashed: RehearsedTables | None = None  # of a hashed output layer

    def prepare(self, welcome: Welcome, host: Host) -> Prepared:
        self._host = host
        assignment = self._assignment = self._assign(welcome)
        self._loop = loop_for(
            assignment.network.layer_views(),
            sparse=assignment.train.sparse,
            hashed=welcome.lsh is not None,
        )
        self._kinds = LOSSES[assignment.network.loss], OPTIMIZERS[welcome.optimizer.name]
        self._cores = WorkerCores(self._server_cores, self._first, host)
        tables, startup = None, 0.0
        if welcome.lsh is not None:
            run = partial(self._cores.run, self._builder)
            hashed = RehearsedTables(assignment, run, self._cost.rebuild_seconds)
            startup = hashed.start() / self.threads
            self._hashed, tables = hashed, hashed.tables
        self._idle.extend(
            _SimulatedThread(number, self._model.thread(assignment, number, tables))
            for number in range(self.threads)
        )
        # The state of thread 0 for evaluation: on the shared parameters themselves.
        self._evaluating = self._idle[0].own.state.model._replace(params=assignment.model.params)
        return Prepared(startup, ())

    def submit(self, work: Work) -> None:
        ranges = cut(work.stop - work.start, work.batch_size, self.threads)
        lease = LeaseSums(work, len(ranges))
        self._ranges.extend(Range(lease, work.start + a, work.start + b) for a, b in ranges)
        while self._idle and self._ranges:
            self._begin_range(self._idle.popleft())

    # A thread -------------------------------------------------------------------------------

    def _begin_range(self, thread: _SimulatedThread) -> None:
        if not self._ranges:
            self._idle.append(thread)
            return
        part = self._ranges.popleft()
        work, part.began = part.lease.work, self._host.now
        building = 0.0
        if work.rollbacks != thread.rollbacks:
            building = self._reset(thread, work.rollbacks)
        if work.task == "evaluate":
            self._evaluate(thread, part)
            return
        if self._hashed is not None:
            self._hashed.enter(thread.own)
        self._cores.run(thread.number, building, lambda: self._train(thread, part))

    def _reset(self, thread: _SimulatedThread, rollbacks: int) -> float:
        """Discard the state of a model that was rolled back; return seconds of building tables."""
        thread.rollbacks = rollbacks
        thread.own.reset()
        return 0.0 if self._hashed is None else self._hashed.reset(rollbacks)

    def _train(self, thread: _SimulatedThread, part: Range) -> None:
        """Begin the next batch of `part`."""
        work = part.lease.work
        if part.start >= part.stop or self._host.fence != work.fence:
            self._end_range(thread, part)
            return
        stop = min(part.start + work.batch_size, part.stop)
        rows = self._assignment.orders.of(work.epoch)[part.start : stop]
        settings = self._assignment.welcome.optimizer
        hyper = Hyper(
            work.learning_rate, settings.l2, settings.momentum, settings.beta2, settings.epsilon
        )
        if self._hashed is not None:
            self._hashed.begin()
        batch = self._model.batch(thread.own, rows, self._settings(work), hyper)
        part.start = stop
        self._advance(thread, part, _BatchInFlight(batch, len(rows), self._noise.factor()))

    def _advance(self, thread: _SimulatedThread, part: Range, flight: _BatchInFlight) -> None:
        """Go on to the next stages of a batch, or to its end."""
        batch = flight.batch
        if batch.active != flight.active:
            flight.seconds, flight.active = self._seconds(flight), batch.active
        if batch.done == batch.stages:
            end = sum(flight.seconds)
            self._at(end, thread, flight, lambda: self._end_batch(thread, part, batch))
            return
        next_stages = next_pass if self._model.interleave == "layer" else next_half
        step = next_stages(flight.seconds, batch.done)

        def run() -> None:
            batch.run(step.stop)
            self._advance(thread, part, flight)

        self._at(step.at, thread, flight, run)

    def _at(
        self, seconds: float, thread: _SimulatedThread, flight: _BatchInFlight, then: Action
    ) -> None:
        """Let the thread compute until it has worked for `seconds` on its batch; then, `then`."""
        remaining = seconds - flight.elapsed
        if remaining > 0.0:
            flight.elapsed = seconds
            self._cores.run(thread.number, remaining, then)
        else:
            then()

    def _seconds(self, flight: _BatchInFlight) -> Sequence[float]:
        """The seconds of the stages of a batch; of one that is delayed, of both together."""
        found = 0.0 if self._hashed is None else self._hashed.found
        work = flight.rows, flight.batch.stored, flight.batch.active, found
        if self._model.interleave == "batch":
            return (flight.factor * self._cost.train_seconds(*work),)
        usual = self._cost.stage_seconds(*work)
        return [flight.factor * seconds for seconds in usual]

    def _end_batch(self, thread: _SimulatedThread, part: Range, batch: StagedBatch) -> None:
        add_totals(batch.totals, part.totals)
        building = 0.0
        if self._hashed is not None:
            building = self._hashed.end(int(batch.totals[UPDATES]))
        if building > 0.0:
            self._cores.run(thread.number, building, lambda: self._train(thread, part))
        else:
            self._train(thread, part)

    def _evaluate(self, thread: _SimulatedThread, part: Range) -> None:
        test, work = self._assignment.test, part.lease.work
        assert test is not None, "the coordinator hands out test rows only if there are any"
        rows = np.arange(part.start, part.stop)
        self._loop.evaluate(
            *(self._evaluating, test.inputs, test.labels, rows, self._settings(work)),
            *(self._assignment.fence, part.totals),
        )
        stored = 0
        if test.sparse:
            stored = int(test.inputs.indptr[part.stop] - test.inputs.indptr[part.start])
        seconds = self._cost.evaluate_seconds(len(rows), stored) * self._noise.factor()
        self._cores.run(thread.number, seconds, lambda: self._end_range(thread, part))

    def _end_range(self, thread: _SimulatedThread, part: Range) -> None:
        lease = part.lease
        if self._hashed is not None:
            self._hashed.leave(thread.own)
        add_totals(part.totals, lease.totals)
        lease.seconds += self._host.now - part.began
        lease.remaining -= 1
        if lease.remaining == 0:
            self._host.post(report(lease.work, lease.totals, lease.seconds / self.threads))
        self._begin_range(thread)

    def _settings(self, work: Work) -> BatchSettings:
        loss, optimizer = self._kinds
        return BatchSettings(work.batch_size, loss, optimizer, work.fence, self.threads)
