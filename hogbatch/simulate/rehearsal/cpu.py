"""A rehearsed CPU worker: real gradients, at the simulated times of a described CPU.

The counterpart of `hogbatch.workers.cpu`. A thread reads and writes a layer of the shared model
when a real thread computes it. A team of threads reads all layers in the middle of its first phase,
and writes each when it updates it.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import TOTALS, UPDATES, add_totals
from hogbatch.kernels.cpu.lsh.selection import NeuronFinder
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.policy.limits import largest_cpu_batch
from hogbatch.simulate.hardware.cpu_cost import CpuCost, mean_found
from hogbatch.simulate.rehearsal.concurrent_model import ConcurrentModel, StagedBatch, Thread
from hogbatch.simulate.rehearsal.cores import Action, Cores, Noise
from hogbatch.simulate.worker import SimulatedEngine, SimulatedWorker
from hogbatch.wire.messages import Lease, Ready, Welcome
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.device_profile import Profile
from hogbatch.workers.compute.hash_tables import HashTables
from hogbatch.workers.compute.measured_batches import MAX_CPU_MODEL_BYTES, measure_cpu_sizes
from hogbatch.workers.compute.teams import Teams
from hogbatch.workers.cpu import LeaseTotals, divide_lease
from hogbatch.workers.noise import ROWS, NoiseMeter

# Runs for that many simulated seconds of a core, then calls the function.
Run = Callable[[float, Callable[[], object]], None]


class RehearsedTables:
    """The hash tables of one worker, which are built in the background.

    The counterpart of `hogbatch.workers.hashed`. A build reads the weights at its start, and its
    tables are used when its simulated time has passed.
    `run` runs the thread that builds them; `seconds` returns the time of a build that hashes a
    number of outputs (`CpuCost.rebuild_seconds`).
    """

    def __init__(self, assignment: Assignment, run: Run, seconds: Callable[[int], float]) -> None:
        self.tables = HashTables(assignment)
        self._run, self._seconds = run, seconds
        self._due = self._building = False
        self.found = 0.0  # outputs in the buckets of a row, on average

    def build_now(self) -> float:
        """Build tables while no thread uses them; return the seconds that one thread takes."""
        built, seconds = self._built()
        self._swap(built)
        return seconds

    def leave(self, thread: Thread) -> None:
        """End the use of the tables that `thread` has entered for one range of a lease."""
        if thread.pinned is not None:
            self.tables.leave(thread.pinned)
            thread.pinned = None
            self._build_if_possible()

    def end(self, updates: int) -> None:
        """Count the `updates` of a batch that ends, 0 or 1."""
        self._due |= self.tables.end(1, updates)
        self._build_if_possible()

    def reset(self, rollbacks: int) -> None:
        """Hash all outputs again after roll-back number `rollbacks`.

        Every thread may call this; only the first call for a roll-back has an effect.
        """
        self._due |= self.tables.reset(rollbacks)
        self._build_if_possible()

    def _built(self) -> tuple[NeuronFinder, float]:
        """Build the other set; return it, and the seconds that one thread takes."""
        parts: list[int] = []  # the first one is the number of outputs that are hashed

        def run_whole(function: Callable[[int, int], None], count: int) -> None:
            parts.append(count)
            function(0, count)

        built = self.tables.build(self.tables.plan(), run_whole)
        return built, self._seconds(parts[0])

    def _swap(self, built: NeuronFinder) -> None:
        self.tables.swap(built)
        self.found = mean_found(built.tables.counts, built.tables.buckets.shape[2])

    def _build_if_possible(self) -> None:
        """Start a build that is due, if no thread uses the tables that it fills."""
        if not self._due or self._building or not self.tables.may_build:
            return
        self._due, self._building = False, True
        built, seconds = self._built()

        def swap() -> None:
            self._swap(built)
            self._building = False
            self._build_if_possible()

        self._run(seconds, swap)


SHORTEST = 50e-6  # seconds; stages that are shorter run together with the following ones
MEASURING = 2  # times as long as training, on one thread: measuring the gradient noise of rows


@dataclass(slots=True)
class Range:
    """Rows [start, stop) of a lease, for one team; `start` moves forward batch by batch."""

    sums: LeaseTotals
    start: int
    stop: int
    began: float = 0.0
    totals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(TOTALS))
    noise: NDArray[np.float64] | None = None  # measured before it


@dataclass(slots=True)
class _SimulatedTeam:
    """A team; of a single thread, if threads compute on their own."""

    threads: range  # of the run
    own: Thread
    meter: NoiseMeter
    rollbacks: int = 0


@dataclass(slots=True)
class _BatchInFlight:
    batch: StagedBatch
    rows: int
    factor: float  # of its seconds
    elapsed: float = 0.0  # seconds of a core's time
    seconds: Sequence[float] = ()  # of its stages
    active: int = -1  # outputs of a hashed layer for which `seconds` was computed


class StageGroup(NamedTuple):
    """Some stages that run at one moment."""

    stop: int  # the first stage that does not run
    at: float


class RehearsedCpu(SimulatedEngine):
    """Leases on simulated threads, which are divided into `teams`; `threads` may be more than that.

    `assign` returns what a worker with this Welcome works on; all workers share `model` and
    `cores`, on which this worker's threads have the numbers from `first` on, and the thread that
    builds its hash tables the number `builder`.
    """

    device = "cpu"

    def __init__(
        self,
        threads: int,
        teams: Teams,
        cost: CpuCost,
        model: ConcurrentModel,
        assign: Callable[[Welcome], Assignment],
        noise: Noise,
        cores: Cores,
        first: int,
        builder: int,
    ) -> None:
        self._cores, self._first, self._builder = cores, first, builder
        self.threads, self._teams = threads, teams
        self.label = f"cpu:{threads}"
        self._cost, self._model, self._assign, self._noise = cost, model, assign, noise
        self._ranges: deque[Range] = deque()
        self._idle: deque[_SimulatedTeam] = deque()
        self._hashed: RehearsedTables | None = None  # of a hashed output layer

    def prepare(self, welcome: Welcome, host: SimulatedWorker) -> tuple[float, Ready]:
        self._host = host
        assignment = self._assignment = self._assign(welcome)
        tables, startup = None, 0.0
        if welcome.lsh is not None:
            builder = range(self._builder, self._builder + 1)
            run = partial(self._compute, builder)
            hashed = RehearsedTables(assignment, run, self._cost.rebuild_seconds)
            startup = hashed.build_now() / self.threads
            self._hashed, tables = hashed, hashed.tables
        count, members = self._teams.count, self._teams.members
        rows = min(ROWS, assignment.train.rows)
        self._measuring = MEASURING * members * self._train_seconds(rows)
        for number in range(count):
            own = self._model.thread(assignment, number, tables, team=members > 1)
            begin = self._first + number * members
            threads = range(begin, begin + members)
            find = None if tables is None else tables.finding(own.state, ROWS)
            given = assignment, own.state.model, count, find
            meter = NoiseMeter(*given, lambda: host.now, self._measuring)
            self._idle.append(_SimulatedTeam(threads, own, meter))
        return startup, Ready(self._profile(), teams=count, members=members)

    def _profile(self) -> Profile:
        """The seconds of batches of one team, as a worker measures them before training."""
        params, train = self._assignment.model.params, self._assignment.train
        if params.nbytes > MAX_CPU_MODEL_BYTES:
            return ()
        largest = min(largest_cpu_batch(train.rows, self._teams.members), train.rows)
        return measure_cpu_sizes(self._train_seconds, largest, train.rows)

    def _train_seconds(self, rows: int, batches: int = 1) -> float:
        """The seconds in which one team trains on `batches` batches of the first `rows` rows."""
        train = self._assignment.train
        stored = int(train.inputs.indptr[rows]) if train.sparse else 0
        return batches * self._cost.train_seconds(rows, stored)

    def submit(self, lease: Lease) -> None:
        self._ranges.extend(Range(*task) for task in divide_lease(lease, self._teams.count))
        while self._idle and self._ranges:
            self._begin_range(self._idle.popleft())

    def _compute(self, threads: range, seconds: float, then: Action) -> None:
        """Run `threads` for `seconds`, and call `then` unless the process has ended."""
        host = self._host
        self._cores.run_together(threads, seconds, lambda: then() if host.alive else None)

    # A team ---------------------------------------------------------------------------------

    def _begin_range(self, team: _SimulatedTeam) -> None:
        if not self._ranges:
            self._idle.append(team)
            return
        part = self._ranges.popleft()
        lease, part.began = part.sums.lease, self._host.now
        if lease.rollbacks != team.rollbacks:
            self._reset(team, lease.rollbacks)
        if lease.task != "train":
            self._evaluate(team, part)
            return
        if self._hashed is not None:
            team.own.pinned = self._hashed.tables.enter()
        part.noise = team.meter.measure(lease, part.start)
        measuring = 0.0 if part.noise is None else self._measuring
        part.began += measuring
        # All of them wait for their cores.
        self._compute(team.threads, measuring, lambda: self._train(team, part))

    def _reset(self, team: _SimulatedTeam, rollbacks: int) -> None:
        """Discard the state of a model that was rolled back."""
        team.rollbacks = rollbacks
        team.own.reset()
        if self._hashed is not None:
            self._hashed.reset(rollbacks)

    def _train(self, team: _SimulatedTeam, part: Range) -> None:
        lease = part.sums.lease
        if part.start >= part.stop or self._host.fence != lease.fence:
            self._end_range(team, part)
            return
        stop = min(part.start + lease.batch_size, part.stop)
        rows = self._assignment.orders.row_order(lease.epoch)[part.start : stop]
        hyper = self._assignment.hyper(lease.learning_rate)
        if self._hashed is not None:
            self._hashed.tables.begin(1)
        batch = StagedBatch(self._model, team.own, rows, self._batches(lease), hyper)
        part.start = stop
        self._advance(team, part, _BatchInFlight(batch, len(rows), self._noise.factor()))

    def _advance(self, team: _SimulatedTeam, part: Range, flight: _BatchInFlight) -> None:
        """Go on to the next stages of a batch, or to its end."""
        batch = flight.batch
        if batch.active != flight.active:
            flight.seconds, flight.active = self._seconds(flight), batch.active
        if batch.done == batch.stages:
            end = sum(flight.seconds)
            self._at(end, team, flight, lambda: self._end_batch(team, part, batch))
            return
        step = self._next_stages(flight)

        def run() -> None:
            batch.run(step.stop)
            self._advance(team, part, flight)

        self._at(step.at, team, flight, run)

    def _next_stages(self, flight: _BatchInFlight) -> StageGroup:
        """The next stages of a batch that run at one moment."""
        if self._model.alone:
            return StageGroup(flight.batch.stages, 0.0)
        done, seconds = flight.batch.done, flight.seconds
        first_phase = self._teams.members > 1 and not done
        if first_phase or self._model.loop.name == "backbone":  # never with the updates
            return StageGroup(done + 1, sum(seconds[:done]) + seconds[done] / 2)
        return next_pass(seconds, done)

    def _at(
        self, seconds: float, team: _SimulatedTeam, flight: _BatchInFlight, then: Action
    ) -> None:
        """Let the team compute until it has worked for `seconds` on its batch; then, `then`."""
        remaining = seconds - flight.elapsed
        if remaining > 0.0:
            flight.elapsed = seconds
            self._compute(team.threads, remaining, then)
        else:
            then()

    def _seconds(self, flight: _BatchInFlight) -> Sequence[float]:
        """The seconds of the stages of a batch."""
        found = 0.0 if self._hashed is None else self._hashed.found
        figures = flight.rows, flight.batch.stored, flight.batch.active, found
        if self._model.alone:
            return (flight.factor * self._cost.train_seconds(*figures),)
        usual = self._cost.stage_seconds(*figures)
        return [flight.factor * seconds for seconds in usual]

    def _end_batch(self, team: _SimulatedTeam, part: Range, batch: StagedBatch) -> None:
        add_totals(batch.totals, part.totals)
        if self._hashed is not None:
            self._hashed.end(int(batch.totals[UPDATES]))
        self._train(team, part)

    def _evaluate(self, team: _SimulatedTeam, part: Range) -> None:
        lease = part.sums.lease
        chosen = self._assignment.sets[lease.task]
        rows = np.arange(part.start, part.stop)
        arrays = team.own.state.model, chosen.inputs, chosen.labels, rows
        rest = self._batches(lease), self._assignment.fence, part.totals, self._assignment.scores
        self._model.loop.evaluate(*arrays, *rest)
        stored, members = 0, self._teams.members  # each of which evaluates its own rows
        if chosen.sparse:
            stored = int(chosen.inputs.indptr[part.stop] - chosen.inputs.indptr[part.start])
        own = math.ceil(len(rows) / members), math.ceil(stored / members)
        seconds = self._cost.evaluate_seconds(*own) * self._noise.factor()
        self._compute(team.threads, seconds, lambda: self._end_range(team, part))

    def _end_range(self, team: _SimulatedTeam, part: Range) -> None:
        sums = part.sums
        if self._hashed is not None:
            self._hashed.leave(team.own)
        if sums.add(part.totals, self._host.now - part.began, part.noise):
            self._host.post(sums.report(self._teams.count))
        self._begin_range(team)

    def _batches(self, lease: Lease) -> BatchSettings:
        return self._assignment.batches(lease.batch_size, lease.fence, self._teams.count)


def next_pass(seconds: Sequence[float], done: int) -> StageGroup:
    """The stages after the first `done`, each of which takes `seconds`, that run together.

    They run in the middle of their time: on average, a pass reads and writes the weights of a layer
    then.
    """
    before, own, stop = sum(seconds[:done]), 0.0, done
    while stop < len(seconds) and own < SHORTEST:
        own += seconds[stop]
        stop += 1
    rest = sum(seconds[stop:])
    if rest < SHORTEST:
        stop, own = len(seconds), own + rest
    return StageGroup(stop, before + own / 2)
