"""The workers of a run: those attached, those that have left, and their fences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import takewhile

from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.worker import Worker
from hogbatch.events.records import WorkerRecord
from hogbatch.policy.base import WorkerView
from hogbatch.policy.noise_scale import NoiseEstimate
from hogbatch.policy.progress import pause_seconds
from hogbatch.policy.ranking import Others, Ranking
from hogbatch.policy.throughput import CombinedSpeed, lease_timeout, would_delay_epoch
from hogbatch.store.fence import MAX_WORKERS
from hogbatch.wire.messages import Hello, Lease

BEATS_PER_S = 50  # heartbeats of all workers together; with thousands, each sends fewer
MAX_MISSED_BEATS = 15.0  # heartbeats; a worker that misses more counts as lost
MAX_MISSED_BEATS_AT_WORK = 5.0  # the same while it holds leases
CHECK_INTERVAL_S = 50e-6  # per attached worker, between two checks of all workers
START_DELAY_S = 0.05  # after the first worker is ready, if others are not yet
HANDOVER_S = 0.2  # of training; for at most this long, new workers wait for those just parked
READY_WITHIN_S = 600.0  # compilation takes seconds, on a slow and busy machine minutes


@dataclass(slots=True)
class Holders:
    """The attached workers by the parts of divided data that they hold, usually one or two each."""

    _by_part: dict[int, dict[int, Worker]] = field(default_factory=dict)  # part → number → worker

    def add(self, worker: Worker) -> None:
        for part in worker.parts:
            self._by_part.setdefault(part, {})[worker.number] = worker

    def drop(self, worker: Worker) -> None:
        for part in worker.parts:
            del self._by_part[part][worker.number]

    def ready(self, part: int) -> list[Worker]:
        """The workers with `part` that can be given rows."""
        return [worker for worker in self._by_part.get(part, {}).values() if worker.ready]

    def missing(self, parts: Iterable[int]) -> list[int]:
        """Those of `parts` that no attached worker holds."""
        return [part for part in parts if not self._by_part.get(part)]


@dataclass(slots=True)
class Roster:
    """The workers of a run.

    There may be thousands, so no operation that runs for every message loops over all of them.
    What policies and lease lengths depend on is kept in rankings instead. :meth:`others`,
    :meth:`would_delay` and :meth:`fraction` first update the rankings of the worker in question.
    """

    beta: float  # weight of a CPU worker's update in policies
    attached: dict[str, Worker] = field(default_factory=dict)  # by key
    departed: list[Worker] = field(default_factory=list)
    holders: Holders = field(default_factory=Holders)  # of parts of divided data
    noise: NoiseEstimate = field(default_factory=NoiseEstimate)  # of the run
    earlier: list[WorkerRecord] = field(default_factory=list)  # before the run was resumed
    admitted: dict[str, int] = field(default_factory=dict)  # device → workers ever admitted
    evaluation_speed: CombinedSpeed = field(default_factory=CombinedSpeed)  # of those ready
    ready_workers: int = 0  # attached workers that can be given leases
    pause_seconds: float = 0.0  # lost in a pause of the training by the workers that train
    _first_ready: float | None = None
    _parked: int = 0  # of those that are ready
    # parked while they held leases, by key: the training second until which new workers wait
    _finishing: dict[str, float] = field(default_factory=dict)
    _unused: int = 0  # the first fence number that was never used
    _revoked: list[tuple[int, int]] = field(default_factory=list)  # heap of (generation, number)
    _numbers: dict[int, Worker] = field(default_factory=dict)
    _by_updates: Ranking = field(default_factory=Ranking)  # as policies count them
    _by_batch: Ranking = field(default_factory=Ranking)  # by the duration of a batch
    _speed: CombinedSpeed = field(default_factory=CombinedSpeed)  # of those that train
    _checked: float = -math.inf

    def admit(self, key: str, hello: Hello, now: float) -> Worker:
        """Admit a worker and give it a name and a fence."""
        fence, number = self._free_fence()
        index = self.admitted.get(hello.device, 0)
        self.admitted[hello.device] = index + 1
        self.attached[key] = Worker(
            key=key,
            number=number,
            name=f"{hello.device}-{index}",
            device=hello.device,
            threads=hello.threads,
            pid=hello.pid,
            fence=fence,
            last_seen=now,
            admitted_at=now,
            beat_seconds=max(1.0, len(self.attached) / BEATS_PER_S),
            noise=self.noise,
            parts=hello.parts,
        )
        self.holders.add(self.attached[key])
        self._numbers[number] = self.attached[key]
        return self.attached[key]

    def remove(self, worker: Worker, seconds: float) -> None:
        """Remove a worker at training second `seconds`; the caller raises its fence."""
        del self.attached[worker.key], self._numbers[worker.number]
        self.holders.drop(worker)
        heappush(self._revoked, (worker.fence + 1, worker.number))
        self._drop(worker)
        self.evaluation_speed.drop(worker.number)
        self.ready_workers -= worker.ready
        self._parked -= not worker.trains
        worker.left_at = seconds
        self.departed.append(worker)
        self._update_pause(worker)

    def make_ready(self, worker: Worker, now: float) -> None:
        """Mark `worker` as ready to be given leases."""
        self.ready_workers += not worker.ready
        worker.ready = True
        self.evaluation_speed.put(worker.number, worker.evaluation_row_seconds)
        self._update_pause(worker)
        self._first_ready = now if self._first_ready is None else self._first_ready

    @property
    def any_trains(self) -> bool:
        return self.ready_workers > self._parked

    @property
    def several_train(self) -> bool:
        """Whether two or more workers train."""
        return self.ready_workers - self._parked > 1

    def park(self, worker: Worker, seconds: float) -> None:
        """Give `worker` no more training leases, from training second `seconds` on."""
        worker.park(seconds)
        self._parked += 1
        self._finishing[worker.key] = seconds + HANDOVER_S
        self._drop(worker)
        self._update_pause(worker)

    def handing_over(self, seconds: float) -> bool:
        """Whether workers that were parked shortly before training second `seconds` still train.

        A worker that begins at the same time would take its first steps, which are the largest,
        from the same model as they, and together they would go too far.
        """
        waiting = {key: until for key, until in self._finishing.items() if until > seconds}
        self._finishing = {
            key: until
            for key, until in waiting.items()
            if (worker := self.attached.get(key)) and worker.leases and not worker.trains
        }
        return bool(self._finishing)

    def resume_training(self, worker: Worker, seconds: float) -> None:
        """Give the parked `worker` training leases again."""
        worker.resume_training(seconds)
        self._parked -= 1
        self._update_pause(worker)
        worker.update_credit = max(0.0, self.initial_credit(worker) - worker.updates)

    def _update_pause(self, changed: Worker) -> None:
        """Compute `pause_seconds` again, because `changed` has begun or stopped to train."""
        if changed.device == "gpu":
            gpus = (worker for worker in self.attached.values() if worker.device == "gpu")
            training = (worker for worker in gpus if worker.ready and worker.trains)
            self.pause_seconds = max((pause_seconds(gpu.merge) for gpu in training), default=0.0)

    def _drop(self, worker: Worker) -> None:
        """Leave `worker` out of the rankings."""
        for ranked in (self._by_updates, self._by_batch, self._speed):
            ranked.drop(worker.number)

    def enough_ready(self, plan: Plan, now: float) -> bool:
        """Whether training can start: `start_with` workers are ready, or at least one is and the
        other workers have left, or did not become ready in time.

        The first one waits a moment for others that have joined, so that the batch policy can
        decide about all of them before any trains.
        """
        if self.ready_workers == 0 or self._first_ready is None:
            return False
        waited = now - self._first_ready
        if waited < START_DELAY_S and self.ready_workers < len(self.attached):
            return False
        all_seen = self.ready_workers + len(self.departed) >= plan.start_with
        return all_seen or waited > plan.stopping.wait_for_workers

    def others(self, worker: Worker) -> Sequence[WorkerView]:
        """Views of all workers that were ever given work, except `worker`, in ascending order of
        updates.
        """
        self.rank(worker)
        return Others(self._by_updates, worker.number, lambda n: self._numbers[n].view())

    def initial_credit(self, worker: Worker) -> float:
        """Updates that a late worker is credited with; it could never catch up otherwise.

        It starts level with the worker that has the fewest updates, as policies count them.
        """
        fewest = self._by_updates.lowest_without(worker.number)
        return fewest / self._weight(worker) if math.isfinite(fewest) else 0.0

    def can_take(self, ledger: Ledger) -> bool:
        """Whether any of the rows left in `ledger` can be given to a worker that is ready."""
        if ledger.divided:
            return any(map(self.holders.ready, ledger.parts_left))
        return self.ready_workers > 0 and ledger.remaining > 0

    def would_delay(self, worker: Worker, remaining: int, part: int | None = None) -> bool:
        """Whether the other workers would finish `remaining` rows before a batch of `worker`.

        `part`: only workers that hold this part of divided data can be given these rows.
        """
        self.rank(worker)
        batch_seconds = worker.batch_size * worker.speed.value
        until_done = batch_seconds + worker.seconds_ahead
        if part is not None:
            holders = (each.number for each in self.holders.ready(part))
            faster = (n for n in holders if 0.0 < self._by_batch.value(n) < batch_seconds)
            return would_delay_epoch(until_done, map(self._speed.of, faster), remaining)
        if not until_done * self._speed.of_others(worker.number) > remaining:
            return False  # the usual case, or its speed is not known yet
        before = takewhile(lambda other: other[0] < batch_seconds, self._by_batch.order)
        return would_delay_epoch(until_done, (self._speed.of(n) for _, n in before), remaining)

    def fraction(self, worker: Worker, part: int | None, *, evaluating: bool = False) -> float:
        """The speed of `worker` over that of all that train, or that are ready if `evaluating`.

        Of these, only workers with `part` count; see :meth:`would_delay`. Until all their speeds
        are known, they count as equally fast.
        """
        self.rank(worker)
        speeds = self.evaluation_speed if evaluating else self._speed
        if part is None:
            workers = self.ready_workers if evaluating else self.ready_workers - self._parked
            return speeds.fraction(worker.number) if len(speeds) == workers else 1 / workers
        numbers = [each.number for each in self.holders.ready(part) if each.trains]
        return speeds.fraction_among(worker.number, numbers) or 1 / len(numbers)

    @property
    def rows_per_second(self) -> float:
        """Rows per second of all workers that train and whose speed is known."""
        return self._speed.of_all

    def with_room(self, leases: int) -> list[Worker]:
        """Ready workers with fewer than `leases` leases, those with the fastest batches first."""
        room = [w for w in self.attached.values() if w.ready and len(w.leases) < leases]
        return sorted(room, key=lambda worker: self._by_batch.value(worker.number))

    def deadline(self, worker: Worker, lease: Lease, now: float) -> float:
        """When `lease` will be overdue; the leases that `worker` holds already come first."""
        return now + lease_timeout(worker.expected_seconds(lease) + worker.seconds_ahead)

    def unresponsive(self, now: float) -> list[tuple[Worker, str]]:
        """Workers that must be removed, and why."""
        if now - self._checked < CHECK_INTERVAL_S * len(self.attached):
            return []
        self._checked = now
        reasons = ((worker, _why_unresponsive(worker, now)) for worker in self.attached.values())
        return [(worker, reason) for worker, reason in reasons if reason]

    def extend_deadlines(self, seconds: float) -> None:
        """Extend all deadlines by `seconds`, in which no message could be received."""
        for worker in self.attached.values():
            worker.last_seen += seconds
            worker.admitted_at += seconds
            for held in worker.leases.values():
                held.deadline += seconds

    def interval_utilization(self, since: float, seconds: float) -> dict[str, float]:
        """Utilization by worker between the last evaluation, at training second `since`, and
        `seconds`, also of workers that have left since.
        """
        workers = [*self.departed, *self.attached.values()]
        found = {each.name: each.interval_utilization(since, seconds) for each in workers}
        return {name: own for name, own in found.items() if own is not None}

    def end_interval(self, seconds: float) -> None:
        """The model is evaluated at training second `seconds`."""
        for worker in self.attached.values():
            worker.end_interval(seconds)

    def records(self, seconds: float) -> list[WorkerRecord]:
        """Totals of all workers at training second `seconds`, those that have left first."""
        workers = [*self.departed, *self.attached.values()]
        earlier = sum(record.updates for record in self.earlier)
        updates = earlier + sum(worker.updates for worker in workers)
        total = max(1, updates)
        records = [replace(one, update_share=one.updates / total) for one in self.earlier]
        return records + [worker.record(seconds, updates) for worker in workers]

    def rank(self, worker: Worker) -> None:
        """Update the rankings with the current figures of `worker`.

        Parked ones have no place, except in that of the speeds of evaluation.
        """
        self.evaluation_speed.put(worker.number, worker.evaluation_row_seconds)
        if not worker.trains:
            return
        updates = worker.update_credit + worker.updates
        self._by_updates.put(worker.number, updates * self._weight(worker))
        self._speed.put(worker.number, worker.speed.value)
        if worker.speed.value > 0:
            self._by_batch.put(worker.number, worker.batch_size * worker.speed.value)

    def _weight(self, worker: Worker) -> float:
        return self.beta if worker.device == "cpu" else 1.0

    def _free_fence(self) -> tuple[int, int]:
        """Value and number of a fence that no attached worker has; of these, the least revoked."""
        if self._unused < MAX_WORKERS:
            self._unused += 1
            return 0, self._unused - 1
        return heappop(self._revoked)


def _why_unresponsive(worker: Worker, now: float) -> str | None:
    """Why `worker` must be removed; None if it need not."""
    beats = MAX_MISSED_BEATS_AT_WORK if worker.leases else MAX_MISSED_BEATS
    if now - worker.last_seen > beats * worker.beat_seconds:
        return f"silent for {now - worker.last_seen:.0f} s"
    if not worker.ready and now - worker.admitted_at > READY_WITHIN_S:
        return f"not ready after {now - worker.admitted_at:.0f} s"
    late = next((held.lease for held in worker.leases.values() if now > held.deadline), None)
    if late is None:
        return None
    return f"did not finish lease {late.number} of {late.stop - late.start} rows in time"
