"""The gradient noise that workers measure reaches evaluations and batch policies."""

import pytest

from hogbatch.coordinator.commands import Report
from tests.support.coordinator_stage import of_kind

NOISE = 101.0, 1.0, 0.0, 0.0, 0.0  # a ratio of squares to products of 101


class Reads:
    """A policy that notes the noise scale that it is told."""

    def __init__(self):
        self.known = []

    def first_size(self, worker):
        return self.next_size(worker, ())

    def next_size(self, worker, others):
        self.known.append(worker.noise_scale)
        return worker.smallest


def test_evaluations_and_policies_are_told_the_estimate(stage):
    policy = Reads()
    play = stage(policy=policy, train_rows=60, epochs=3, by_epoch=True, lease_seconds=1e-9)
    play.attach("a", profile=((1, 0.01), (10, 0.05)))
    play.done("a")
    assert policy.known == [None, None]
    play.done("a", noise=NOISE)
    assert policy.known[-1].rows == pytest.approx(100)
    play.work_on()
    first, *_ = [report.evaluation for report in of_kind(play.said, Report)]
    assert first.noise_scale == pytest.approx(100) and first.noise_error >= 0.0


def test_reports_without_it_leave_it_unknown(stage):
    """Those of GPU workers, servers and earlier versions."""
    play = stage(train_rows=60, epochs=1, by_epoch=True)
    play.attach("a")
    play.work_on()
    (only,) = [report.evaluation for report in of_kind(play.said, Report)]
    assert only.noise_scale is None and only.noise_error is None
