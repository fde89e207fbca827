"""A user's policy that does not return in time; those of users are classes of this module."""

import threading

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import PolicyError
from hogbatch.events.event import PolicyStopped
from hogbatch.policy.base import JointPolicy, Operation, PolicySettings, WorkerView
from hogbatch.policy.choose import find
from hogbatch.run import policy_limit
from hogbatch.run.policy_limit import limited

WORKER = WorkerView("cpu", 1, 2, 64, batch_size=5, merge_every=3, weight=0.5)
PARKED = WorkerView("gpu", 1, 32, 512, batch_size=128, trains=False)


class Mine:
    """Returns 7, but waits for `released` in one method."""

    waits = ""
    released = threading.Event()

    def __init__(self, settings):
        pass

    def first_size(self, worker):
        return self._answer("first_size", 7)

    def next_size(self, worker, others):
        return self._answer("next_size", 7)

    def _answer(self, method, answer):
        if self.waits == method:
            self.released.wait()
        return answer


class Joint(Mine):
    def decide(self, workers):
        return self._answer("decide", [Operation(9)] * len(workers))


class Fails(Mine):
    def next_size(self, worker, others):
        raise KeyError("no idea")


@pytest.fixture
def own(monkeypatch):
    """Make the policy called `name`, which waits in the method `waits`; return it and its events.

    The limit is short only if it waits: a machine may be busy.
    """
    monkeypatch.setattr(Mine, "released", threading.Event())

    def make(name, waits=""):
        monkeypatch.setattr(Mine, "waits", waits)
        monkeypatch.setattr(policy_limit, "LIMIT_S", 0.01 if waits else 60.0)
        recorded = []
        return limited(find(f"{__name__}:{name}")(PolicySettings()), recorded.append), recorded

    yield make
    Mine.released.set()


def test_a_policy_that_returns_decides(own):
    policy, recorded = own("Mine")
    assert (policy.first_size(WORKER), policy.next_size(WORKER, [])) == (7, 7)
    assert not isinstance(policy, JointPolicy)
    assert own("Joint")[0].decide([WORKER, PARKED]) == [Operation(9)] * 2
    with pytest.raises(PolicyError, match="next_size failed with KeyError: 'no idea'"):
        own("Fails")[0].next_size(WORKER, [])
    assert recorded == []


@pytest.mark.parametrize("waits", ["first_size", "next_size", "decide"])
def test_a_policy_that_does_not_return_is_not_called_again(own, waits):
    policy, recorded = own("Joint", waits)
    asked = {
        "first_size": lambda: policy.first_size(WORKER),
        "next_size": lambda: policy.next_size(WORKER, []),
        "decide": lambda: policy.decide([WORKER, PARKED]),
    }
    present = {
        "first_size": 2,
        "next_size": 5,
        "decide": [Operation(5, 3, 0.5), Operation(128, trains=False)],
    }
    assert asked[waits]() == present[waits]
    Mine.released.set()
    assert {method: ask() for method, ask in asked.items()} == present
    assert recorded == [PolicyStopped(f"{__name__}:Joint", waits, 0.01)]
    assert recorded[0].text.endswith("and is not called again; batch sizes stay as they are")


def test_if_all_that_trained_have_left_the_others_train(own):
    policy, _ = own("Joint", "decide")
    assert policy.decide([PARKED]) == [Operation(128)]


def test_policies_of_hogbatch_have_no_limit():
    policy = find("adaptive")(PolicySettings())
    assert limited(policy, print) is policy


def test_no_thread_is_left_when_a_run_has_ended(own):
    before = set(threading.enumerate())
    policy, _ = own("Mine")
    policy.next_size(WORKER, [])
    (thread,) = set(threading.enumerate()) - before
    del policy
    thread.join(WITHIN_S)
    assert not thread.is_alive()
