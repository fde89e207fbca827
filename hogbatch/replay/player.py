"""Repeats the recorded reads and writes of the model, on one core.

A batch is computed in stages (`rehearse.concurrent_model`), layer by layer, at moments between its
recorded begin and end that are in proportion to the work of the layers. Where no batches overlap,
it is computed when it ended, which gives the same result. Races inside one layer are not repeated.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.checkpoint.snapshots import ModelCopy
from hogbatch.compute.assignment import Assignment
from hogbatch.compute.hash_tables import HashTables
from hogbatch.compute.thread_state import thread_state
from hogbatch.coordinator.progress import LossSums
from hogbatch.errors import DataError
from hogbatch.kernels.contract import (
    LOSS,
    LOSSES,
    METRIC_SUMS,
    OPTIMIZERS,
    ROWS,
    SKIPPED,
    TOTALS,
    Hyper,
)
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.model.footprint import EVALUATION_ROWS
from hogbatch.rehearse.concurrent_model import ConcurrentModel, Interleave, StagedBatch, Thread
from hogbatch.rehearse.replica import RehearsedReplica
from hogbatch.replay.recorded import RecordedRun
from hogbatch.replay.results import Evaluated, TrainingTime, Update
from hogbatch.replay.schedule import Moment, Schedule, Step
from hogbatch.replay.stages import middles
from hogbatch.run.segments import RunSegments
from hogbatch.store.average import MovingMean
from hogbatch.store.dataset import EpochOrders
from hogbatch.telemetry.update_log import Kind, Records, UpdateFile


class _Batch(NamedTuple):
    """A batch that has begun, and has not been written."""

    staged: StagedBatch
    rows: NDArray[np.int64]
    updates: int  # written when it began


class _Worker:
    """What one recorded worker keeps during the replay."""

    def __init__(self, file: UpdateFile, assignment: Assignment) -> None:
        self.file, self.assignment = file, assignment
        hashed = assignment.welcome.lsh is not None and file.header.device == "cpu"
        self.tables = HashTables(assignment) if hashed else None
        self.built: dict[int, Any] = {}  # by number of the record: tables that are not used yet
        self.threads: dict[int, Thread] = {}
        self.rollbacks: dict[int, int] = {}  # by thread
        self.batches: dict[int, _Batch] = {}  # by thread: at most one at a time
        self.replica: RehearsedReplica | None = None  # of a GPU worker
        self.upcoming = _upcoming(file.records)


def _upcoming(records: Records) -> dict[int, int]:
    """For each PULL or TAKE that a TAKE follows: the record of the latter, the next interval."""
    own = np.flatnonzero(np.isin(records["kind"], [Kind.PULL, Kind.TAKE]))
    own = own[np.argsort(records["begin"][own], kind="stable")].tolist()
    return {a: b for a, b in pairwise(own) if records["kind"][b] == Kind.TAKE}


class Player:
    """Replays `run` step by step.

    `wrote` is called after each update, `evaluates` before each evaluation.
    """

    def __init__(
        self,
        run: RecordedRun,
        wrote: Callable[[Update], None],
        evaluates: Callable[[], None],
        interleave: Interleave = "layer",
    ) -> None:
        self._run, self._wrote, self._evaluates = run, wrote, evaluates
        lsh = run.plan.training.lsh
        self.schedule = Schedule(run.files, middles(run.network, run.data.train, lsh))
        self._segments = RunSegments.of(run.config, run.data, run.network, run.run_dir)
        self._segments.quarantined.rows = list(run.quarantined)
        self._data = self._segments.as_views(run.data)  # read-only, as kernels are compiled for
        self._model = self._segments.model
        self._alone = not self.schedule.overlapping
        self._concurrent = ConcurrentModel(
            *(self._model, run.network, self._data.train),
            lsh=lsh,
            alone=self._alone,
            interleave=interleave,
        )
        self._orders = EpochOrders.attach(self._segments.shared)
        self._workers = [self._worker(file) for file in run.files]
        self._mean = MovingMean(self._model)
        self._snapshot: ModelCopy | None = None
        self._rollbacks = 0
        self._rolls_back = bool((run.files[0].records["kind"] == Kind.ROLL_BACK).any())
        self._trained = LossSums()  # since the last evaluation
        self._time = TrainingTime()
        self.updates = 0
        self.evaluations: list[Evaluated] = []

    def close(self) -> None:
        """Release the memory."""
        self._segments.close()

    @property
    def params(self) -> NDArray[np.float32]:
        """The parameters [P] now."""
        return self._model.params

    def play(self, until: Callable[[int, float], bool]) -> None:
        """Replay until `until(updates, training seconds)` is true, or to the end."""
        for step in self.schedule:
            record = self._run.files[step.file].records[step.record]
            if until(self.updates, self._time.at(step.at)):
                return
            self._do(step, Kind(int(record["kind"])), record)

    def _do(self, step: Step, kind: Kind, record: Any) -> None:
        worker = self._workers[step.file]
        match kind:
            case Kind.UPDATE if step.moment is Moment.BEGIN:
                self._begin(worker, record)
            case Kind.UPDATE if step.moment is Moment.STAGE:
                self._advance(worker, int(record["thread"]))
            case Kind.UPDATE:
                self._end(worker, step, record)
            case Kind.JOIN if worker.file.header.device == "gpu":
                self._join_replica(worker, by_rows=bool(record["number"]))
            case Kind.PULL | Kind.TAKE | Kind.MERGE | Kind.FETCH:
                self._exchange(worker, step, kind, record)
            case Kind.JOIN:
                self._join(worker, int(record["thread"]))
            case Kind.BUILD:
                self._build(worker, step)
            case Kind.SHUFFLE:
                self._segments.shuffle(int(record["epoch"]), int(record["number"]))
            case Kind.SNAPSHOT if record["number"] and self._rolls_back:
                self._snapshot = ModelCopy.of(self._model)
            case Kind.ROLL_BACK:
                self._roll_back()
            case Kind.SAMPLE:
                self._mean.sample()
            case Kind.EVALUATION:
                self._evaluate(int(record["number"]))

    # CPU workers ----------------------------------------------------------------------------------

    def _worker(self, file: UpdateFile) -> _Worker:
        run, header = self._run, file.header
        assignment = Assignment(
            welcome=run.plan.training.welcome(header.run, header.worker, header.name),
            network=run.network,
            train=self._data.train,
            test=self._data.test,
            orders=self._orders,
            model=self._model,
            fence=np.zeros(8, np.int64),
        )
        return _Worker(file, assignment)

    def _join(self, worker: _Worker, number: int) -> None:
        worker.threads[number] = self._concurrent.thread(worker.assignment, number, worker.tables)
        worker.rollbacks[number] = 0

    def _begin(self, worker: _Worker, record: Any) -> None:
        number = int(record["thread"])
        if number not in worker.threads or number in worker.batches:
            raise DataError(f"{worker.file.path}: the records of thread {number} are incomplete")
        thread, rollbacks = worker.threads[number], int(record["rollbacks"])
        if worker.rollbacks[number] != rollbacks:
            worker.rollbacks[number] = rollbacks
            thread.reset()
        if worker.tables is not None:
            worker.tables.begin(1)
            thread.pinned = worker.tables.current
        self._time.trains(int(record["begin"]))
        rows = self._rows(worker, record)
        settings, hyper = self._settings(worker, record)
        batch = self._concurrent.batch(thread, rows, settings, hyper)
        worker.batches[number] = _Batch(batch, rows, self.updates)
        if self._concurrent.interleave == "batch" and not self._alone:
            batch.run(1)

    def _advance(self, worker: _Worker, number: int) -> None:
        """Run the next stage of a batch; a thread alone computes the whole batch at its end."""
        if self._alone or self._concurrent.interleave == "batch" or number not in worker.batches:
            return
        batch = worker.batches[number].staged
        batch.run(batch.done + 1)

    def _end(self, worker: _Worker, step: Step, record: Any) -> None:
        batch = worker.batches.pop(int(record["thread"]))
        batch.staged.run(batch.staged.stages)
        if worker.tables is not None:
            worker.tables.end(1, 1)
        staleness = self.updates - batch.updates
        self._written(worker, step.at, record, batch.rows, batch.staged.totals, staleness)

    def _written(
        self,
        worker: _Worker,
        at: int,
        record: Any,
        rows: NDArray[np.int64],
        totals: NDArray[np.float64],
        staleness: int,
    ) -> None:
        self.updates += 1
        self._trained.rows += int(totals[ROWS] - totals[SKIPPED])
        self._trained.skipped += int(totals[SKIPPED])
        self._trained.loss += float(totals[LOSS])
        self._wrote(
            Update(
                self.updates,
                self._time.at(at),
                worker.file.header.name,
                thread=int(record["thread"]),
                epoch=int(record["epoch"]),
                start=int(record["start"]),
                rows=int(record["rows"]),
                batch_size=int(record["batch_size"]),
                learning_rate=float(record["learning_rate"]),
                staleness=staleness,
                loss=float(totals[LOSS]),
                skipped=int(totals[SKIPPED]),
                rows_of_data=rows,
            )
        )

    def _rows(self, worker: _Worker, record: Any) -> NDArray[np.int64]:
        order = self._orders.of(int(record["epoch"]))
        start, rows = int(record["start"]), int(record["rows"])
        if start + rows > len(order):
            raise DataError(
                f"{worker.file.path}: a record has rows up to {start + rows}, but the training set "
                f"has {len(order)}"
            )
        return order[start : start + rows].copy()

    def _settings(self, worker: _Worker, record: Any) -> tuple[BatchSettings, Hyper]:
        optimizer = self._run.plan.training.optimizer
        settings = BatchSettings(
            int(record["batch_size"]),
            LOSSES[self._run.network.loss],
            OPTIMIZERS[optimizer.name],
            0,
            worker.file.header.threads,
        )
        rate = float(record["learning_rate"])
        return settings, Hyper(
            rate, optimizer.l2, optimizer.momentum, optimizer.beta2, optimizer.epsilon
        )

    def _build(self, worker: _Worker, step: Step) -> None:
        tables = worker.tables
        if tables is None:
            raise DataError(f"{worker.file.path}: hash tables in a run without a hashed layer")
        if step.moment is Moment.BEGIN:
            worker.built[step.record] = tables.build(tables.plan())
        else:
            tables.swap(worker.built.pop(step.record))

    # GPU workers ----------------------------------------------------------------------------------

    def _join_replica(self, worker: _Worker, *, by_rows: bool) -> None:
        if worker.replica is None:
            worker.replica = RehearsedReplica(worker.assignment, by_rows=by_rows)
        else:
            worker.replica.reset()

    def _exchange(self, worker: _Worker, step: Step, kind: Kind, record: Any) -> None:
        """Do what happened to the replica; it is trained when its change is taken."""
        replica = worker.replica
        if replica is None:
            raise DataError(f"{worker.file.path}: the records of the replica are incomplete")
        match kind:
            case Kind.PULL:
                self._time.trains(step.at)
                replica.begin(self._rows(worker, record))
            case Kind.TAKE:
                rows = self._rows(worker, record)
                replica.train(rows, int(record["batch_size"]), float(record["learning_rate"]))
                following = worker.upcoming.get(step.record)
                upcoming = None
                if following is not None:
                    upcoming = self._rows(worker, worker.file.records[following])
                replica.take(upcoming)
            case Kind.MERGE:
                replica.merge(float(record["weight"]))
                self._model.merges[0] += 1
                totals, staleness = replica.taken_totals, int(record["staleness"])
                rows = self._rows(worker, record)
                self._written(worker, step.at, record, rows, totals, staleness)
            case Kind.FETCH:
                replica.fetch()

    # The coordinator ------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        if self._snapshot is None:
            self._segments.initialise_model()
        else:
            self._snapshot.copy_into(self._model)
        self._mean.reset()
        self._trained = LossSums()
        self._rollbacks += 1
        for worker in self._workers:  # now, as the next build may be recorded before a batch
            if worker.tables is not None:
                worker.tables.reset(self._rollbacks)

    def _evaluate(self, number: int) -> None:
        """Evaluate the model, or its moving mean, as evaluation `number` did."""
        self._evaluates()
        run, shows_mean = self._run, self._run.plan.stopping.average
        if number >= len(run.evaluations):  # the coordinator was killed while it wrote the event
            return
        if shows_mean:
            self._mean.show(True)
        tested = self._test()
        if shows_mean:
            self._mean.show(False)
        loss, unit = run.network.loss, run.plan.unit
        trained, self._trained = self._trained.measured(loss, unit), LossSums()
        measured = None if tested.skipped else tested.measured(loss, unit)
        event = run.evaluations[number]
        self.evaluations.append(
            Evaluated(
                *(event["seconds"], self.updates),
                *(event["train_loss"], event["test_loss"], event["test_values"]),
                trained and trained.loss,
                measured and measured.loss,
                measured.metrics if measured else {},
            )
        )
        self._time.evaluated(event["seconds"])

    def _test(self) -> LossSums:
        """Sums over the test set; without rows if there is none."""
        run, test, totals = self._run, self._data.test, np.zeros(TOTALS)
        if test is None:
            return LossSums()
        lsh = run.plan.training.lsh
        layers = run.network.layer_views()
        loop = loop_for(layers, sparse=test.sparse, hashed=lsh is not None)
        state = thread_state(self._workers[0].assignment, 0)
        kinds = LOSSES[run.network.loss], OPTIMIZERS[run.config.optimizer]
        loop.evaluate(
            *(state.model, test.inputs, test.labels, np.arange(test.rows)),
            *(BatchSettings(EVALUATION_ROWS, *kinds, 0, 1), np.zeros(8, np.int64), totals),
        )
        skipped = int(totals[SKIPPED])
        return LossSums(
            rows=int(totals[ROWS]) - skipped,
            skipped=skipped,
            loss=max(0.0, float(totals[LOSS])),
            metric_sums=[float(each) for each in totals[METRIC_SUMS:][:3]],
        )
