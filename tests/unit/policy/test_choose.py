"""Policies by name; those of users are classes of this module."""

import importlib
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from hogbatch.errors import PolicyError, UsageError
from hogbatch.policy.base import JointPolicy, Operation, PolicySettings, WorkerView
from hogbatch.policy.choose import POLICIES, find

WORKER = WorkerView("cpu", 1, 1, 64, batch_size=5)


class Mine:
    def __init__(self, settings):
        self.alpha = settings.alpha

    def first_size(self, worker):
        return 7

    def next_size(self, worker, others):
        return worker.batch_size * self.alpha


class Half(Mine):
    next_size = 3


def make_half(settings):
    return Half(settings)


class Returns(Mine):
    value = 7

    def first_size(self, worker):
        return self.value

    def next_size(self, worker, others):
        return self.value


class Raises(Mine):
    def first_size(self, worker):
        raise KeyError("a\nb")


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


def own(name, **settings):
    return find(f"{__name__}:{name}")(PolicySettings(**settings))


def test_a_users_class_is_created_with_the_settings():
    policy = own("Mine", alpha=3.0)
    assert (policy.first_size(WORKER), policy.next_size(WORKER, [])) == (7, 15)
    assert not isinstance(policy, JointPolicy)
    with pytest.raises(PolicyError, match=r"Raises: first_size failed with KeyError.*$"):
        own("Raises").first_size(WORKER)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adaptve", f"one of {', '.join(POLICIES)}, or module:Class; got 'adaptve'"),
        ("", "got ''"),
        (":Mine", "got ':Mine'"),
        (f"{__name__}:", f"got '{__name__}:'"),
        ("no_such_policies:Mine", "No module named 'no_such_policies'"),
        ("broken_policies:Mine", "No module named 'no_such_module'"),
        (".relative:Mine", "cannot be imported"),
        (f"{__name__}:Other", "has no attribute 'Other'"),
        (f"{__name__}:number", "not callable"),
        (f"{__name__}:Stubborn", "takes 1 positional argument"),
        (f"{__name__}:FailsAtOnce", "cannot create an instance: ValueError"),
        ("leaving_policies:Any", "cannot be imported: SystemExit: 3"),
        (f"{__name__}:Half", "the policy has no method next_size"),
        (f"{__name__}:make_half", "the policy has no method next_size"),
        (f"{__name__}:Mine:more", "has no attribute 'Mine:more'"),
    ],
)
def test_what_cannot_be_a_policy_is_refused_in_one_sentence(tmp_path, monkeypatch, name, words):
    (tmp_path / "broken_policies.py").write_text("import no_such_module")
    (tmp_path / "leaving_policies.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as raised:
        find(name)(PolicySettings())
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--policy")


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "32", None, True, (1,), 2j, np.float32("nan")]
)
@pytest.mark.parametrize("method", ["first_size", "next_size"])
def test_an_invalid_size_is_reported_with_class_method_and_value(monkeypatch, value, method):
    monkeypatch.setattr(Returns, "value", value)
    policy, others = own("Returns"), [[]] if method == "next_size" else []
    with pytest.raises(PolicyError) as raised:
        getattr(policy, method)(WORKER, *others)
    said = str(raised.value)
    assert f":Returns: {method} must return a finite number" in said
    assert said.endswith(f"got {value!r}")


def test_any_finite_number_is_a_valid_size(monkeypatch):
    for value in (3, 3.7, np.int32(3), np.float64(3.2), Fraction(7, 2), 10**400):
        monkeypatch.setattr(Returns, "value", value)
        assert own("Returns").first_size(WORKER) == (3 if value < 9 else 10**400)


def test_a_users_policy_may_decide_about_all_workers(monkeypatch):
    answer = [Operation(7.5, weight=0.5), Operation(3, trains=False)]
    monkeypatch.setattr(Joint, "answer", answer)
    policy = own("Joint")
    assert isinstance(policy, JointPolicy)
    assert policy.decide([WORKER, WORKER]) == [Operation(7, weight=0.5), Operation(3, trains=False)]


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
def test_an_invalid_decision_is_refused_in_one_sentence(monkeypatch, answer, words):
    monkeypatch.setattr(Joint, "answer", answer)
    with pytest.raises(PolicyError) as raised:
        own("Joint").decide([WORKER])
    assert words in str(raised.value) and "decide must return" in str(raised.value)


def test_only_the_module_of_a_policy_is_imported_from_the_working_directory(tmp_path, monkeypatch):
    policy = "from hogbatch.policy.fixed import Fixed as Local"
    (tmp_path / "local_policies.py").write_text(policy)
    (tmp_path / "no_such_package.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    find("local_policies:Local")(PolicySettings())
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package")
