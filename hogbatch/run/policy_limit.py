"""A limit of the time in which a user's batch policy must answer.

The coordinator handles no messages and no Ctrl-C while it waits for an answer, so a policy that
never returns would stop the run for good. The policy is therefore called on a thread. Python cannot
end a thread: a policy that is late is not called again, and its thread ends with the process.
"""

import queue
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from hogbatch.coordinator.background import TaskThread
from hogbatch.events.event import PolicyStopped
from hogbatch.policy.base import BatchPolicy, Operation, WorkerView
from hogbatch.policy.choose import CheckedJointPolicy, CheckedPolicy

LIMIT_S: Final = 5.0

T = TypeVar("T")


def limited(policy: BatchPolicy, record: Callable[[PolicyStopped], object]) -> BatchPolicy:
    """Return `policy`, with the limit if it is a user's; `record` gets the event if it is late."""
    if isinstance(policy, CheckedJointPolicy):
        return LimitedJointPolicy(policy, record)
    return LimitedPolicy(policy, record) if isinstance(policy, CheckedPolicy) else policy


class LimitedPolicy:
    """Asks `policy` until it is late for the first time; from then on, batch sizes stay."""

    def __init__(self, policy: CheckedPolicy, record: Callable[[PolicyStopped], object]) -> None:
        self._policy = policy
        self._record = record
        self._stopped = False
        self._answers = queue.SimpleQueue[Any]()  # results, and exceptions to raise
        self._thread = TaskThread[Any](self._answers.put)
        # It has no reference to this object, so it ends when this object is removed.
        weakref.finalize(self, self._thread.end)

    def first_size(self, worker: WorkerView) -> int:
        return self._ask("first_size", worker.smallest, worker)

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return self._ask("next_size", worker.batch_size, worker, others)

    def _ask(self, method: str, otherwise: T, *arguments: object) -> T:
        """Call `method`; return `otherwise` if the policy is late, or was late before."""
        if self._stopped:
            return otherwise
        self._thread.submit(getattr(self._policy, method), *arguments)
        try:
            answer = self._answers.get(timeout=LIMIT_S)
        except queue.Empty:
            self._stopped = True
            self._record(PolicyStopped(self._policy.name, method, LIMIT_S))
            return otherwise
        if isinstance(answer, BaseException):
            raise answer
        result: T = answer
        return result


class LimitedJointPolicy(LimitedPolicy):
    """The same for a policy that also decides how all workers train."""

    def decide(self, workers: Sequence[WorkerView]) -> Sequence[Operation]:
        return self._ask("decide", _present(workers), workers)


def _present(workers: Sequence[WorkerView]) -> Sequence[Operation]:
    """The present operations of `workers`; all train if those that trained have left."""
    all_train = not any(worker.trains for worker in workers)
    return [
        Operation(each.batch_size, each.merge_every, each.weight, all_train or each.trains)
        for each in workers
    ]
