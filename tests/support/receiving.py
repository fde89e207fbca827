"""Receiving in tests: wait until a condition holds."""

import time

from benchmarks.common.job import WITHIN_S


def receive_until(coordinator, condition):
    """Receive (key, message) until `condition` holds for those received so far; return them."""
    deadline, seen = time.monotonic() + WITHIN_S, []
    while not condition(seen):
        assert time.monotonic() < deadline, f"only {seen} came, {coordinator.refused} were refused"
        coordinator.wait(0.05)
        seen += coordinator.receive()
    return seen
