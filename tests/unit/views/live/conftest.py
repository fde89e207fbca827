"""Runs that views show."""

import pytest

from hogbatch.events.state import condition_of
from tests.unit.views.status.conftest import (
    TRAINING,
    evaluation,
    joined,
    lease,
    ready,
    started,
    state_after,
)

SIZES = [(80, 24), (200, 60), (60, 20), (40, 10)]


@pytest.fixture
def long_run():
    """A run of two workers with thirty evaluations, a time limit and a target."""
    course = (
        each
        for n in range(1, 31)
        for each in (
            lease(0.5 * n, 0, 100),
            lease(0.5 * n, 100, 300, "gpu-0", 128, 2, staleness=3.5),
            evaluation(0.5 * n, 300 * n, 0.3 + 0.2 / n, train_loss=0.28 + 0.2 / n),
        )
    )
    events = (joined(), joined("gpu-0", "gpu:0"), ready(), ready("gpu-0", 128), *course)
    return state_after(started(epochs=20, max_seconds=60.0, target_loss=0.303), *events)


@pytest.fixture
def short_run():
    """A run with one evaluation."""
    return state_after(*TRAINING)


def in_progress(run):
    """The condition of a run whose process exists."""
    return condition_of(run, True)
