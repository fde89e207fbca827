"""Policies by name."""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from hogbatch.errors import UsageError
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import BatchPolicy, Settings
from hogbatch.policy.fixed import Fixed
from hogbatch.policy.hogbatch import Hogbatch

POLICIES: Final[dict[str, Callable[[Settings], BatchPolicy]]] = {
    "adaptive": Adaptive,
    "hogbatch": Hogbatch,
    "fixed": Fixed,
}


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
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(f"--policy {name}: cannot make that class: {error}") from None
    missing = [m for m in ("first_size", "next_size") if not callable(getattr(policy, m, None))]
    if missing:
        raise UsageError(f"--policy {name}: the class has no method {missing[0]}")
    return policy
