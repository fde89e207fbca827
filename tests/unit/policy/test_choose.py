import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from hogbatch.errors import PolicyError, UsageError
from hogbatch.policy.base import JointPolicy, Operation, PolicySettings, WorkerView
from hogbatch.policy.choose import POLICIES, choose

MINE = """
class Mine:
    def __init__(self, settings):
        self.alpha = settings.alpha

    def first_size(self, worker):
        return 7

    def next_size(self, worker, others):
        return worker.batch_size * self.alpha

class Half:
    def __init__(self, settings):
        self.next_size = 3

    def first_size(self, worker):
        return 7

class Returns:
    value = 7

    def __init__(self, settings):
        pass

    def first_size(self, worker):
        return self.value

    def next_size(self, worker, others):
        return self.value

class Raises(Returns):
    def first_size(self, worker):
        raise KeyError("a\\nb")

class FailsAtOnce(Mine):
    def __init__(self, settings):
        raise ValueError

class Stubborn(Mine):
    def __init__(self):
        pass

class Joint(Mine):
    answer = None
    def decide(self, workers):
        return self.answer

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module `own_policies` on sys.path."""
    (tmp_path / "own_policies.py").write_text(MINE)
    (tmp_path / "broken_policies.py").write_text("import no_such_module")
    (tmp_path / "leaving_policies.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_policies", raising=False)


def test_a_users_class_is_created_with_the_settings(own):
    policy = choose("own_policies:Mine", PolicySettings(alpha=3.0))
    worker = WorkerView("cpu", 1, 1, 64, batch_size=5)
    assert (policy.first_size(worker), policy.next_size(worker, [])) == (7, 15)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adaptve", f"one of {', '.join(POLICIES)}, or module:Class; got 'adaptve'"),
        ("", "got ''"),
        (":Mine", "got ':Mine'"),
        ("own_policies:", "got 'own_policies:'"),
        ("no_such_policies:Mine", "No module named 'no_such_policies'"),
        ("broken_policies:Mine", "No module named 'no_such_module'"),
        (".relative:Mine", "cannot be imported"),
        ("own_policies:Other", "has no attribute 'Other'"),
        ("own_policies:number", "not callable"),
        ("own_policies:Stubborn", "takes 1 positional argument"),
        ("own_policies:FailsAtOnce", "cannot create an instance: ValueError"),
        ("leaving_policies:Any", "cannot be imported: SystemExit: 3"),
        ("own_policies:Half", "the class has no method next_size"),
        ("own_policies:Mine:more", "has no attribute 'Mine:more'"),
    ],
)
def test_what_cannot_be_a_policy_is_refused_in_one_sentence(own, name, words):
    with pytest.raises(UsageError) as raised:
        choose(name, PolicySettings())
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--policy")


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, "32", None, True, (1,), 2j, np.float32("nan")],
)
@pytest.mark.parametrize("method", ["first_size", "next_size"])
def test_an_invalid_size_is_reported_with_class_method_and_value(own, value, method):
    policy = choose("own_policies:Returns", PolicySettings())
    sys.modules["own_policies"].Returns.value = value
    worker = WorkerView("cpu", 1, 1, 64, batch_size=5)
    with pytest.raises(PolicyError) as raised:
        policy.first_size(worker) if method == "first_size" else policy.next_size(worker, [])
    said = str(raised.value)
    assert f"own_policies:Returns: {method} must return a finite number" in said
    assert said.endswith(f"got {value!r}")


@pytest.mark.parametrize("value", [3, 3.7, np.int32(3), np.float64(3.2), Fraction(7, 2)])
def test_any_finite_number_is_a_valid_size(own, value):
    policy = choose("own_policies:Returns", PolicySettings())
    sys.modules["own_policies"].Returns.value = value
    assert policy.first_size(WorkerView("cpu", 1, 1, 64)) == 3


def test_a_method_that_fails_is_named_in_one_line(own):
    with pytest.raises(PolicyError, match="Raises: first_size failed with KeyError") as raised:
        choose("own_policies:Raises", PolicySettings()).first_size(WorkerView("cpu", 1, 1, 64))
    assert "\n" not in str(raised.value)


WORKER = WorkerView("cpu", 1, 1, 64, batch_size=5)


def test_a_users_policy_may_decide_about_all_workers(own):
    policy = choose("own_policies:Joint", PolicySettings())
    sys.modules["own_policies"].Joint.answer = [
        Operation(7.5, weight=0.5),
        Operation(3, trains=False),
    ]
    assert isinstance(policy, JointPolicy)
    assert policy.decide([WORKER, WORKER]) == [Operation(7, weight=0.5), Operation(3, trains=False)]
    assert not isinstance(choose("own_policies:Mine", PolicySettings()), JointPolicy)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "an Operation for each of 1 workers; got None"),
        ([], "an Operation for each of 1 workers; got []"),
        ([3], "instances of Operation; got 3"),
        ([Operation(math.nan)], "finite numbers that are not negative"),
        ([Operation(8, merge_every=-1)], "finite numbers that are not negative"),
        ([Operation(8, weight=math.inf)], "finite numbers that are not negative"),
        ([Operation(8, trains=False)], "at least one worker that trains; got none"),
    ],
)
def test_an_invalid_decision_is_refused_in_one_sentence(own, answer, words):
    policy = choose("own_policies:Joint", PolicySettings())
    sys.modules["own_policies"].Joint.answer = answer
    with pytest.raises(PolicyError) as raised:
        policy.decide([WORKER])
    assert words in str(raised.value) and "decide must return" in str(raised.value)
