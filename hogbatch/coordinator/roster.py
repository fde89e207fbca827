"""Who is attached, who has left, and which line among the fences each has."""

from dataclasses import dataclass, field

from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.worker import Worker
from hogbatch.policy.base import WorkerView
from hogbatch.policy.throughput import LeaseWish, lease_rows, share_of_speed, would_hold_up
from hogbatch.store.fence import WORKERS as MOST_WORKERS
from hogbatch.telemetry.records import WorkerRecord
from hogbatch.wire.messages import Hello

SILENT_AFTER_S = 15.0  # workers beat every second


@dataclass(slots=True)
class Roster:
    """The workers of a run."""

    beta: float  # what policies count an update of a CPU worker for
    attached: dict[str, Worker] = field(default_factory=dict)  # by key
    departed: list[Worker] = field(default_factory=list)
    _first_ready: float | None = None
    _revoked: dict[int, int] = field(default_factory=dict)  # fence number → generation
    _admitted: dict[str, int] = field(default_factory=dict)  # device → workers ever taken in

    def full(self) -> str:
        """Why there is no room for another worker; empty if there is."""
        full = len(self.attached) >= MOST_WORKERS
        return f"this run has {MOST_WORKERS} workers, the most there can be" if full else ""

    def admit(self, key: str, hello: Hello, now: float) -> Worker:
        """Take in a worker, with a name and a fence of its own."""
        number = self._free_number()
        place = self._admitted.get(hello.device, 0)
        self._admitted[hello.device] = place + 1
        self.attached[key] = Worker(
            key=key,
            number=number,
            name=f"{hello.device}-{place}",
            device=hello.device,
            threads=hello.threads,
            pid=hello.pid,
            fence=self._revoked.get(number, 0),
            last_seen=now,
        )
        return self.attached[key]

    def remove(self, worker: Worker, seconds: float) -> None:
        """Let a worker go at training second `seconds`; its fence is to be raised."""
        del self.attached[worker.key]
        self._revoked[worker.number] = worker.fence + 1
        worker.left_at = seconds
        self.departed.append(worker)

    def make_ready(self, worker: Worker, now: float) -> None:
        """`worker` can be given work."""
        worker.ready = True
        self._first_ready = now if self._first_ready is None else self._first_ready

    def enough_ready(self, plan: Plan, now: float) -> bool:
        """Whether as many workers can be given work as are to start with; or one can, and the
        others have gone again or been waited for in vain.
        """
        ready = sum(worker.ready for worker in self.attached.values())
        if ready == 0 or self._first_ready is None:
            return False
        waited = now - self._first_ready
        all_seen = ready + len(self.departed) >= plan.start_with
        return all_seen or waited > plan.ending.wait_for_workers

    def others(self, worker: Worker) -> list[WorkerView]:
        """Views of all ready workers but `worker`."""
        ready = (other for other in self.attached.values() if other.ready)
        return [other.view() for other in ready if other is not worker]

    def head_start(self, worker: Worker) -> float:
        """Updates to credit a late worker with, or it would be behind for ever: it starts level
        with the one furthest back, as policies count.
        """
        counts = [view.updates * self._weight(view.device) for view in self.others(worker)]
        return min(counts, default=0.0) / self._weight(worker.device)

    def would_wait(self, worker: Worker, remaining: int) -> bool:
        """Whether all others would be done with `remaining` rows before a batch of `worker`."""
        return would_hold_up(worker.view(), self.others(worker), remaining)

    def lease_rows(self, worker: Worker, batch_size: int, seconds: float, remaining: int) -> int:
        """Rows of the next lease of `worker`: some `seconds` of work, out of `remaining` rows."""
        speed = worker.speed.value
        wish = LeaseWish(
            batch_size=batch_size,
            threads=worker.threads,
            seconds_per_row=speed,
            target_seconds=seconds,
            remaining=remaining,
            share=share_of_speed(speed, [other.seconds_per_row for other in self.others(worker)]),
        )
        return lease_rows(wish)

    def silent(self, now: float) -> list[Worker]:
        """Workers that have not been heard of for too long."""
        return [w for w in self.attached.values() if now - w.last_seen > SILENT_AFTER_S]

    def forgive(self, seconds: float) -> None:
        """Leave out some time in which nobody could be heard."""
        for worker in self.attached.values():
            worker.last_seen += seconds

    def records(self, seconds: float) -> list[WorkerRecord]:
        """Everyone's account at training second `seconds`, those who left first."""
        everyone = [*self.departed, *self.attached.values()]
        updates = sum(worker.updates for worker in everyone)
        return [worker.record(seconds, updates) for worker in everyone]

    def _weight(self, device: str) -> float:
        return self.beta if device == "cpu" else 1.0

    def _free_number(self) -> int:
        """A fence line that no attached worker has; the least revoked one first."""
        taken = {worker.number for worker in self.attached.values()}
        free = (number for number in range(MOST_WORKERS) if number not in taken)
        return min(free, key=lambda number: self._revoked.get(number, 0))
