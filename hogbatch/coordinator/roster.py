"""Who is attached, who has left, and which line among the fences each has."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import takewhile

from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.worker import Lease, Worker
from hogbatch.policy.base import WorkerView
from hogbatch.policy.ranking import Others, Ranking
from hogbatch.policy.throughput import (
    JointSpeed,
    LeaseWish,
    lease_rows,
    patience,
    would_hold_up,
)
from hogbatch.store.fence import MAX_WORKERS
from hogbatch.telemetry.records import WorkerRecord
from hogbatch.wire.messages import Hello

BEATS_PER_S = 50  # of all workers together; so thousands of them beat less often
SILENT_FOR = 15.0  # heartbeats that did not come: then a worker is given up
SILENT_AT_WORK_FOR = 5.0  # of one that others wait for
LOOK_S = 50e-6  # for each worker, between two looks for those who are to be given up
GOLDEN = 0.618  # multiples of it, but for whole numbers, lie evenly between 0 and 1
READY_WITHIN_S = 600.0  # compiling takes seconds; on a slow, busy machine minutes


@dataclass(slots=True)
class Roster:
    """The workers of a run.

    There may be thousands, so nothing that is done for every message goes through all of them.
    What policies and lease lengths depend on is kept in order instead; it is brought up to date for
    a worker whenever :meth:`others`, :meth:`would_wait` or :meth:`lease_rows` is asked about it.
    """

    beta: float  # what policies count an update of a CPU worker for
    attached: dict[str, Worker] = field(default_factory=dict)  # by key
    departed: list[Worker] = field(default_factory=list)
    earlier: list[WorkerRecord] = field(default_factory=list)  # before the run was resumed
    _inherited: dict[str, list[int]] = field(default_factory=dict)  # device → batch sizes then
    _first_ready: float | None = None
    _ready: int = 0
    _unused: int = 0  # the first fence number that nobody has had
    _revoked: list[tuple[int, int]] = field(default_factory=list)  # heap of (generation, number)
    _numbers: dict[int, Worker] = field(default_factory=dict)
    _by_updates: Ranking = field(default_factory=Ranking)  # as policies count them
    _by_batch: Ranking = field(default_factory=Ranking)  # by the seconds that a batch takes
    _speed: JointSpeed = field(default_factory=JointSpeed)
    _looked: float = -math.inf
    _admitted: dict[str, int] = field(default_factory=dict)  # device → workers ever taken in

    def resume(
        self,
        earlier: Sequence[WorkerRecord],
        batch_sizes: Mapping[str, Sequence[int]],
        admitted: Mapping[str, int],
    ) -> None:
        """Go on where others have left off: new workers take over their batch sizes in turn."""
        self.earlier = list(earlier)
        self._inherited = {device: list(sizes) for device, sizes in batch_sizes.items()}
        self._admitted = dict(admitted)

    @property
    def admitted(self) -> dict[str, int]:
        """Workers ever taken in, by device."""
        return dict(self._admitted)

    def inherited_size(self, device: str) -> int | None:
        """The batch size that a worker on `device` takes over; None if there is none left."""
        sizes = self._inherited.get(device)
        return sizes.pop(0) if sizes else None

    def batch_sizes(self) -> dict[str, list[int]]:
        """The batch sizes by device: of those at work, and those not yet taken over."""
        sizes: dict[str, list[int]] = {}
        for worker in self.attached.values():
            if worker.batch_size:
                sizes.setdefault(worker.device, []).append(worker.batch_size)
        for device, left in self._inherited.items():
            sizes[device] = sizes.get(device, []) + left
        return sizes

    def full(self) -> str:
        """Why there is no room for another worker; empty if there is."""
        full = len(self.attached) >= MAX_WORKERS
        return f"this run has {MAX_WORKERS} workers, the most there can be" if full else ""

    def admit(self, key: str, hello: Hello, now: float) -> Worker:
        """Take in a worker, with a name and a fence of its own."""
        fence, number = self._free_line()
        place = self._admitted.get(hello.device, 0)
        self._admitted[hello.device] = place + 1
        self.attached[key] = Worker(
            key=key,
            number=number,
            name=f"{hello.device}-{place}",
            device=hello.device,
            threads=hello.threads,
            pid=hello.pid,
            fence=fence,
            last_seen=now,
            admitted_at=now,
            beat_seconds=max(1.0, len(self.attached) / BEATS_PER_S),
        )
        self._numbers[number] = self.attached[key]
        return self.attached[key]

    def remove(self, worker: Worker, seconds: float) -> None:
        """Let a worker go at training second `seconds`; its fence is to be raised."""
        del self.attached[worker.key], self._numbers[worker.number]
        heappush(self._revoked, (worker.fence + 1, worker.number))
        for kept in (self._by_updates, self._by_batch, self._speed):
            kept.drop(worker.number)
        self._ready -= worker.ready
        worker.left_at = seconds
        self.departed.append(worker)

    def make_ready(self, worker: Worker, now: float) -> None:
        """`worker` can be given work."""
        self._ready += not worker.ready
        worker.ready = True
        self._first_ready = now if self._first_ready is None else self._first_ready

    def enough_ready(self, plan: Plan, now: float) -> bool:
        """Whether as many workers can be given work as are to start with; or one can, and the
        others have gone again or been waited for in vain.
        """
        if self._ready == 0 or self._first_ready is None:
            return False
        waited = now - self._first_ready
        all_seen = self._ready + len(self.departed) >= plan.start_with
        return all_seen or waited > plan.ending.wait_for_workers

    def others(self, worker: Worker) -> Sequence[WorkerView]:
        """Views of all workers but `worker` that were ever given work, those furthest back in
        updates first.
        """
        self._note(worker)
        return Others(self._by_updates, worker.number, self._view)

    def head_start(self, worker: Worker) -> float:
        """Updates to credit a late worker with, or it would be behind for ever: it starts level
        with the one furthest back, as policies count.
        """
        furthest_back = self._by_updates.lowest_without(worker.number)
        return furthest_back / self._weight(worker) if math.isfinite(furthest_back) else 0.0

    def would_wait(self, worker: Worker, remaining: int) -> bool:
        """Whether others would be done with `remaining` rows before a batch of `worker`."""
        self._note(worker)
        batch_seconds = worker.batch_size * worker.speed.value
        until_done = batch_seconds + sum(map(worker.expected_seconds, worker.leases.values()))
        if not until_done * self._speed.of_others(worker.number) > remaining:
            return False  # as nearly always, or its speed is not known yet
        before = takewhile(lambda other: other[0] < batch_seconds, self._by_batch.order)
        return would_hold_up(until_done, (self._speed.of(n) for _, n in before), remaining)

    def lease_rows(self, worker: Worker, batch_size: int, seconds: float, remaining: int) -> int:
        """Rows of the next lease of `worker`: some `seconds` of work, out of `remaining` rows."""
        self._note(worker)
        all_known = len(self._speed) == self._ready
        wish = LeaseWish(
            batch_size=batch_size,
            threads=worker.threads,
            seconds_per_row=worker.speed.value,
            target_seconds=seconds,
            remaining=remaining,
            fraction=self._speed.fraction(worker.number) if all_known else 1 / self._ready,
            workers=self._ready,
            turn=worker.number * GOLDEN % 1.0,
        )
        return lease_rows(wish)

    def with_room(self, leases: int) -> list[Worker]:
        """Ready workers with fewer than `leases` leases, those with the quickest batches first."""
        room = [w for w in self.attached.values() if w.ready and len(w.leases) < leases]
        return sorted(room, key=lambda worker: self._by_batch.value(worker.number))

    def due(self, worker: Worker, lease: Lease, now: float) -> float:
        """When `lease`, which it is about to be given, will be overdue; others may come first."""
        ahead = [worker.expected_seconds(other) for other in worker.leases.values()]
        return now + patience(worker.expected_seconds(lease) + sum(ahead))

    def given_up(self, now: float) -> list[tuple[Worker, str]]:
        """Workers that are not to be counted on any more, and why."""
        if now - self._looked < LOOK_S * len(self.attached):
            return []
        self._looked = now
        reasons = ((worker, _fault(worker, now)) for worker in self.attached.values())
        return [(worker, reason) for worker, reason in reasons if reason]

    def forgive(self, seconds: float) -> None:
        """Leave out some time in which nobody could be heard."""
        for worker in self.attached.values():
            worker.last_seen += seconds
            worker.admitted_at += seconds
            for lease in worker.leases.values():
                lease.due += seconds

    def records(self, seconds: float) -> list[WorkerRecord]:
        """Everyone's account at training second `seconds`, those who left first."""
        everyone = [*self.departed, *self.attached.values()]
        before = sum(record.updates for record in self.earlier)
        updates = before + sum(worker.updates for worker in everyone)
        shared = max(1, updates)
        earlier = [replace(one, update_share=one.updates / shared) for one in self.earlier]
        return earlier + [worker.record(seconds, updates) for worker in everyone]

    def _note(self, worker: Worker) -> None:
        """Take in what is known of `worker` by now."""
        updates = worker.head_start + worker.updates
        self._by_updates.put(worker.number, updates * self._weight(worker))
        self._speed.put(worker.number, worker.speed.value)
        if worker.speed.value > 0:
            self._by_batch.put(worker.number, worker.batch_size * worker.speed.value)

    def _view(self, number: int) -> WorkerView:
        return self._numbers[number].view()

    def _weight(self, worker: Worker) -> float:
        return self.beta if worker.device == "cpu" else 1.0

    def _free_line(self) -> tuple[int, int]:
        """Fence value and number that no attached worker has; those least revoked come first."""
        if self._unused < MAX_WORKERS:
            self._unused += 1
            return 0, self._unused - 1
        return heappop(self._revoked)


def _fault(worker: Worker, now: float) -> str:
    """Why `worker` is not to be counted on any more; empty if it is."""
    beats = SILENT_AT_WORK_FOR if worker.leases else SILENT_FOR
    if now - worker.last_seen > beats * worker.beat_seconds:
        return f"silent for {now - worker.last_seen:.0f} s"
    if not worker.ready and now - worker.admitted_at > READY_WITHIN_S:
        return f"not ready after {now - worker.admitted_at:.0f} s"
    late = next((lease for lease in worker.leases.values() if now > lease.due), None)
    return f"has not done lease {late.number} of {late.stop - late.start} rows" if late else ""
