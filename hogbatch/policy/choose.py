"""Policies by name."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, cast

from hogbatch.errors import UsageError
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import BatchPolicy, Settings, WorkerView
from hogbatch.policy.fixed import Fixed
from hogbatch.policy.hogbatch import Hogbatch

POLICIES: Final[dict[str, Callable[[Settings], BatchPolicy]]] = {
    "adaptive": Adaptive,
    "hogbatch": Hogbatch,
    "fixed": Fixed,
}


class Guarded:
    """A user's policy, whose failures become one sentence."""

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
            if not isinstance(size, float):  # which may be nan; what it means is decided later
                size = int(size)
            return cast(int, size)
        except Exception as error:
            reason = f"{method} failed with {type(error).__name__}: {error}"
            raise UsageError(f"--policy {self._name}: {reason}") from error


def choose(name: str, settings: Settings) -> BatchPolicy:
    """Make the policy called `name`, or the class of `module:Class`."""
    if name in POLICIES:
        return POLICIES[name](settings)
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        known = ", ".join(POLICIES)
        raise UsageError(f"--policy must be one of {known}, or module:Class; got {name!r}")
    try:
        policy: BatchPolicy = getattr(import_module(module), attribute)(settings)
    except Exception as error:  # whatever a module may do when it is imported
        raise UsageError(f"--policy {name}: cannot make that class: {error}") from None
    missing = [m for m in ("first_size", "next_size") if not callable(getattr(policy, m, None))]
    if missing:
        raise UsageError(f"--policy {name}: the class has no method {missing[0]}")
    return Guarded(name, policy)
