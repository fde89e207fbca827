"""Batch policies by name."""

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Final

from hogbatch.errors import PolicyError, UsageError
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import BatchPolicy, PolicySettings, WorkerView
from hogbatch.policy.fixed import Fixed
from hogbatch.policy.hogbatch import Hogbatch

POLICIES: Final[dict[str, Callable[[PolicySettings], BatchPolicy]]] = {
    "adaptive": Adaptive,
    "hogbatch": Hogbatch,
    "fixed": Fixed,
}

MAX_SHOWN: Final = 60  # characters of a returned value in a message


class CheckedPolicy:
    """Wraps a user's policy; raises PolicyError if it fails or does not return a finite number."""

    def __init__(self, name: str, policy: BatchPolicy) -> None:
        self._name = name
        self._policy = policy

    def first_size(self, worker: WorkerView) -> int:
        return self._ask("first_size", worker)

    def next_size(self, worker: WorkerView, others: Sequence[WorkerView]) -> int:
        return self._ask("next_size", worker, others)

    def _ask(self, method: str, *arguments: object) -> int:
        try:
            size: Any = getattr(self._policy, method)(*arguments)
        except Exception as error:
            reason = f"{method} failed with {_shown(error)}"
            raise PolicyError(f"--policy {self._name}: {reason}") from error
        if not _is_finite_number(size):
            raise PolicyError(
                f"--policy {self._name}: {method} must return a finite number of rows; "
                f"got {_short(size)}"
            )
        return int(size)  # the caller clamps it to the worker's limits


def choose(name: str, settings: PolicySettings) -> BatchPolicy:
    """Create the policy called `name`, or an instance of `module:Class`."""
    if name in POLICIES:
        return POLICIES[name](settings)
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        known = ", ".join(POLICIES)
        raise UsageError(f"--policy must be one of {known}, or module:Class; got {name!r}")
    try:
        policy: BatchPolicy = getattr(import_module(module), attribute)(settings)
    except (Exception, SystemExit) as error:  # an import may raise anything
        raise UsageError(f"--policy {name}: cannot create an instance: {_shown(error)}") from None
    missing = [m for m in ("first_size", "next_size") if not callable(getattr(policy, m, None))]
    if missing:
        raise UsageError(f"--policy {name}: the class has no method {missing[0]}")
    return CheckedPolicy(name, policy)


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
