"""Measurements of a GPU worker during training, and their use."""

import time

import pytest

from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.store.merge import MERGE_RULES
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, WIDE, Rehearsal, epochs, lease
from tests.support.limited_devices import Clocked

BATCH = 32  # a measured size; the last batch of an epoch is incomplete
BATCHES = 19  # of an epoch
BATCH_SECONDS = 2e-3  # simulated
SLOW_SECONDS = 0.05  # longer than an epoch takes
MAX_LEASES = 100  # of one epoch each, in which a change must be noticed


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache of profiles is empty."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))


class Delay:
    """Calls `function` after a time that may change."""

    def __init__(self, function, seconds=0.0):
        self.function, self.seconds = function, seconds

    def __call__(self, *arguments):
        time.sleep(self.seconds)
        self.function(*arguments)


def device(mapped=True, **seconds):
    """A device whose batches take BATCH_SECONDS."""
    made = Clocked(loss_gradient=BATCH_SECONDS, **seconds)
    if not mapped:
        made.mapped = lambda array: None
    return made


def delay_host(monkeypatch, seconds=0.0):
    """Delay merges on the host."""
    rule = MERGE_RULES["delta"]
    merge = Delay(rule.merge, seconds)
    monkeypatch.setitem(MERGE_RULES, "delta", rule._replace(merge=merge))
    return merge


def train(rig):
    """The report of a lease of one epoch."""
    (report,) = rig.do(lease(batch=BATCH))
    return report


def train_until(rig, condition):
    """Train until `condition` is true of a report."""
    assert any(condition(train(rig)) for _ in range(MAX_LEASES))


@pytest.mark.parametrize("by", ["device", "host"])
def test_slower_merges_become_less_frequent_and_faster_ones_frequent_again(monkeypatch, by):
    made = device(mapped=by == "device")
    add = delay_host(monkeypatch) if by == "host" else Delay(HostDevice.kernels.add)
    if by == "device":
        delay_host(monkeypatch, SLOW_SECONDS)  # so that the device is faster
        made.kernels.add = add
    rig = Rehearsal(assignment(examples(ROWS), merge_every=0), device=made)
    assert 1 < train(rig).updates <= BATCHES
    add.seconds = SLOW_SECONDS
    train_until(rig, lambda report: report.updates == 1)
    add.seconds = 0.0
    train_until(rig, lambda report: report.updates > 1)


def test_merges_that_are_slow_at_the_start_are_rare_at_once(monkeypatch):
    delay_host(monkeypatch, SLOW_SECONDS)
    rig = Rehearsal(assignment(examples(ROWS), merge_every=0), device=device(mapped=False))
    assert train(rig).updates == 1


def test_touched_rows_are_measured_with_those_of_an_interval():
    touched, made = [], Clocked()

    def loss_gradient(loss, labels, rows, *rest):
        made.clock += 1e-5 * len(rows)  # so that no batch is faster than the smallest
        HostDevice.kernels.loss_gradient(loss, labels, rows, *rest)

    def take_rows(rows, found, *rest):
        touched.append(int(found[0]))
        made.clock += 1e-5 * found[0]
        HostDevice.kernels.take_rows(rows, found, *rest)

    made.kernels.loss_gradient, made.kernels.take_rows = loss_gradient, take_rows
    Rehearsal(assignment(examples(ROWS, **WIDE), merge_every=0), device=made)
    assert touched[-1] > 2 * touched[0] > 0


def test_reports_contain_what_merging_cost():
    made = device(hand_over=0.0)
    rig = Rehearsal(assignment(examples(ROWS), merge_every=5), epochs(1, BATCH), made)
    params = rig.given.model.params
    inputs = rig.given.train.nbytes + 2 * 8 * ROWS  # the set, the order of the file and an epoch's
    for report in rig.hear(3):
        assert report.merge_seconds == 0
        # Of each merge, at least the pull and the change; of the first one, also the first pull.
        least, most = 2 * report.updates, 3 * report.updates + 1
        assert least * params.nbytes <= report.transferred - inputs <= most * params.nbytes
        inputs = 0  # they are copied once
    made.seconds["hand_over"] = 0.25
    assert train(rig).merge_seconds == pytest.approx(0.25 * 4)


def test_an_evaluation_reports_its_pull():
    given = assignment(examples(ROWS), examples(ROWS))
    rig = Rehearsal(given, device=HostDevice())
    train(rig)
    (report,) = rig.do(lease(task="test"))
    assert report.transferred == given.model.params.nbytes and report.transfer_seconds > 0
    assert train(rig).transferred % given.model.params.nbytes == 0
