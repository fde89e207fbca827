"""Batch policies by name."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Final

from hogbatch.errors import PolicyError, UsageError
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import BatchPolicy, JointPolicy, Operation, PolicySettings, WorkerView
from hogbatch.policy.fixed import Fixed, Hogbatch
from hogbatch.policy.paper_adaptive import PaperAdaptive

Factory = Callable[[PolicySettings], BatchPolicy]

POLICIES: Final[dict[str, Factory]] = {
    "adaptive": Adaptive,
    "paper-adaptive": PaperAdaptive,
    "hogbatch": Hogbatch,
    "fixed": Fixed,
}

MAX_SHOWN: Final = 60  # characters of a returned value in a message


class CheckedPolicy:
    """Wraps a user's policy; raises PolicyError if it fails or does not return a finite number."""

    def __init__(self, name: str, policy: BatchPolicy) -> None:
        self.name = name
        self._policy = policy

    def first_size(self, worker: WorkerView) -> int:
        return self._ask("first_size", worker)

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return self._ask("next_size", worker, others)

    def _ask(self, method: str, *arguments: object) -> int:
        size = self._call(method, *arguments)
        if not _is_finite_number(size):
            expected = f"a finite number of rows; got {_short(size)}"
            raise PolicyError(f"--policy {self.name}: {method} must return {expected}")
        return int(size)  # the caller clamps it to the worker's limits

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:
            reason = f"{method} failed with {_shown(error)}"
            raise PolicyError(f"--policy {self.name}: {reason}") from error


class CheckedJointPolicy(CheckedPolicy):
    """The same for a user's policy that also decides how all workers train."""

    def decide(self, workers: Sequence[WorkerView]) -> Sequence[Operation]:
        operations = self._call("decide", workers)
        problem = _problem(operations, len(workers))
        if problem:
            raise PolicyError(f"--policy {self.name}: decide must return {problem}")
        return [replace(each, batch_size=int(each.batch_size)) for each in operations]


def find(name: str) -> Factory:
    """The class of the policy called `name`, or `module:Class`; UsageError if there is none."""
    if name in POLICIES:
        return POLICIES[name]
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        known = ", ".join(POLICIES)
        raise UsageError(f"--policy must be one of {known}, or module:Class; got {name!r}")
    try:
        with _working_directory_importable():
            factory: Factory = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # an import may raise anything
        raise UsageError(f"--policy {name}: cannot be imported: {_shown(error)}") from None
    if isinstance(factory, type):
        _expect_methods(name, factory)
    return partial(_create, name, factory)


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """Append the working directory to the module search path.

    Only while the module that the user named is imported: later, a file in that directory could
    take the place of a package that is not installed.
    """
    if "" in sys.path:  # in an interactive interpreter
        yield
        return
    sys.path.append("")
    try:
        yield
    finally:
        sys.path.remove("")


def _create(name: str, factory: Factory, settings: PolicySettings) -> BatchPolicy:
    try:
        policy = factory(settings)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--policy {name}: cannot create an instance: {_shown(error)}") from None
    _expect_methods(name, policy)  # `factory` may be a function
    joint = isinstance(policy, JointPolicy)
    return CheckedJointPolicy(name, policy) if joint else CheckedPolicy(name, policy)


def _expect_methods(name: str, policy: object) -> None:
    for method in ("first_size", "next_size"):
        if not callable(getattr(policy, method, None)):
            raise UsageError(f"--policy {name}: the policy has no method {method}")


def _problem(operations: Any, workers: int) -> str | None:
    """The expected result of `decide` instead of `operations`; None if they are valid."""
    if not isinstance(operations, Sequence) or len(operations) != workers:
        return f"an Operation for each of {workers} workers; got {_short(operations)}"
    for each in operations:
        if not isinstance(each, Operation):
            return f"instances of Operation; got {_short(each)}"
        numbers = each.batch_size, each.merge_every, each.weight
        if not all(map(_is_finite_number, numbers)) or each.merge_every < 0 or each.weight < 0:
            return f"finite numbers that are not negative; got {_short(each)}"
    if not any(each.trains for each in operations):
        return "at least one worker that trains; got none"
    return None


def _shown(error: BaseException) -> str:
    """`error` on one line, with its type since the message may be empty."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _is_finite_number(value: object) -> bool:
    if isinstance(value, Integral):
        return not isinstance(value, bool)
    return isinstance(value, Real) and math.isfinite(value)
