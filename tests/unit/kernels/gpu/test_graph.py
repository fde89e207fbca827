"""Captured steps equal successive calls of `Executor.train_batch`."""

import gc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.config.augmentation import Augmentation
from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, SGD
from hogbatch.kernels.dropout import Dropout, key_of
from hogbatch.kernels.executor import Randomness, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.gpu.graph import IN_A_ROW, IN_ALL, MAX_CAPTURED, CapturedSteps
from tests.support.executor_runs import HYPER, ROWS, Run
from tests.support.kernel_backends import Backend
from tests.support.kernel_cases import FORMS, some_rows
from tests.support.limited_devices import Limited
from tests.support.pairs import pairs

LOSS = LOSSES["softmax"]
SMALL, LARGE = 6, 11  # rows of batches
DONE, CAPTURED, REPLAYED = "done", "captured", "replayed"  # how a step is run


@pytest.fixture(scope="module")
def device(device_kernels):
    return device_kernels.device


class Recorder:
    """Wraps `device.capture` and records how each step was run."""

    def __init__(self, device, patch):
        self.events = []
        self.kept = weakref.WeakSet()  # captured steps that are still referenced
        self._capture = device.capture
        patch.setattr(device, "capture", self.capture)

    def capture(self, work):
        self.events.append(CAPTURED)
        again = self._capture(work)

        def repeat():
            self.events.append(REPLAYED)
            again()

        self.kept.add(repeat)
        return repeat

    def by(self, step, *arguments):
        """How `step` was run."""
        self.events.clear()
        step(*arguments)
        return self.events[-1] if self.events else DONE


@pytest.fixture
def recorder(device, monkeypatch):
    return Recorder(device, monkeypatch)


class Training:
    """A model on the device with its data, trained on random rows.

    The same arguments make the same numbers: trained one way they are the oracle of the other.
    """

    def __init__(
        self, device, optimizer=SGD, sparse=False, dropout=None, backbone=None, augmentation=None
    ):
        run = Run(Backend(device, device.kernels), sparse=sparse, backbone=backbone)
        self.device, self.optimizer, move = device, optimizer, run.backend.move
        self.flat = [move(each) for each in (run.params, *run.slots)]
        self.network, self.totals = run.executor(*self.flat), move(run.totals)
        self.seeded, given = (
            dropout or augmentation,
            (self.network, LOSS, optimizer, HYPER._replace(rate=0.0)),
        )
        self.steps = CapturedSteps(device, *given, dropout, augmentation)
        self.fraction, self.augmentation = dropout.fraction if dropout else 0.0, augmentation
        self.data, self.random = (move(run.inputs), move(run.labels)), np.random.default_rng(8)
        self.rows, self.updates = {}, 0  # an array for each slot and size

    def next_rows(self, slot, batch):
        """Different rows each time, in the same array."""
        if (slot, batch) not in self.rows:
            self.rows[slot, batch] = self.device.zeros(batch, np.int64)
        rows = self.rows[slot, batch]
        self.device.copy_into(rows, some_rows(self.random, batch, of=ROWS))
        return rows

    def hyper(self, rate):
        """The row numbers of the next update."""
        self.updates += 1
        return corrected(self.optimizer, HYPER._replace(rate=rate), self.updates)

    def step(self, batch, slot=0, rate=HYPER.rate):
        self.steps.set_rate(self.hyper(rate).rate)
        self.steps.set_update(self.updates)
        rows = self.next_rows(slot, batch)
        self.steps.train(slot, *self.data, rows, rows, self.totals)

    def plain(self, batch, slot=0, rate=HYPER.rate):
        rows, hyper = self.next_rows(slot, batch), self.hyper(rate)
        kinds, random = (LOSS, self.optimizer, hyper), None
        if self.seeded is not None:
            key = self.device.to_device(key_of(self.seeded.seed, self.updates))
            random = Randomness(self.fraction, key, self.augmentation)
        self.network.train_batch(*self.data, rows, *kinds, self.totals, random=random)

    def numbers(self):
        """Parameters, slots and totals, on the host."""
        there = (*self.flat, self.totals)
        here = [np.empty(array.shape, array.dtype) for array in there]
        for array, out in zip(there, here, strict=True):
            self.device.to_host(array, out)
        return here


def assert_same(training, expected):
    for got, exact in zip(training.numbers(), expected.numbers(), strict=True):
        assert_allclose(got, exact, rtol=1e-3, atol=1e-6)  # products may be added in another order


@pairs(optimizer=OPTIMIZERS, sparse=FORMS, dropout=[None, Dropout(0.4, 3)])
def test_captured_steps_train_like_single_batches(device, recorder, optimizer, sparse, dropout):
    training, expected = (Training(device, optimizer, sparse, dropout) for _ in range(2))
    training.steps.reserve(LARGE, sparse=sparse)
    for batch in (SMALL, SMALL, SMALL, LARGE, SMALL, LARGE, LARGE, LARGE, SMALL, LARGE):
        how = recorder.by(training.step, batch)
        expected.plain(batch)
        assert_same(training, expected)
    assert how == REPLAYED


@pytest.mark.parametrize(
    ("backbone", "augmentation"),
    [
        ("6x5x2,conv:4x3x3,relu,pool:2", Augmentation((6, 5, 2), True, 2, 9)),
        ("1x4x3,lstm:5,last", None),
        ("1x4x3,gru:5:both", None),
    ],
)
def test_captured_steps_compute_the_layers_below_dense_ones(
    device, recorder, backbone, augmentation
):
    training, expected = (
        Training(device, backbone=backbone, augmentation=augmentation) for _ in range(2)
    )
    for batch in (SMALL, LARGE, SMALL, SMALL, SMALL, LARGE, SMALL):
        how = recorder.by(training.step, batch)
        expected.plain(batch)
        assert_same(training, expected)
    assert how == REPLAYED


@pairs(optimizer=OPTIMIZERS, sparse=FORMS)
def test_a_new_rate_takes_effect_in_a_captured_step(device, recorder, optimizer, sparse):
    training, expected = (Training(device, optimizer, sparse) for _ in range(2))
    for rate in (0.05, 0.05, 0.05, 0.05, 0.4, 0.05, 30.0, 0.0):  # with 30, rows are bounded
        before = training.numbers()[0]
        how = recorder.by(training.step, SMALL, 0, rate)
        expected.plain(SMALL, rate=rate)
        assert_same(training, expected)
        assert np.array_equal(training.numbers()[0], before) == (rate == 0)
    assert how == REPLAYED


@pytest.mark.parametrize("enlarge", ["train", "reserve", "evaluate"])
def test_reallocated_scratch_discards_captured_steps(device, recorder, enlarge):
    training, expected = (Training(device) for _ in range(2))
    hows = []
    for number in range(6):
        if number == 3 and enlarge == "train":
            assert recorder.by(training.step, LARGE) == DONE
            expected.plain(LARGE)
        elif number == 3 and enlarge == "reserve":
            training.steps.reserve(LARGE, sparse=False)
        elif number == 3:
            for each in (training, expected):
                data = *each.data, each.next_rows(0, LARGE)
                if each is training:
                    each.steps.evaluate(*data, each.totals)
                else:
                    each.network.evaluate_batch(*data, LOSS, each.totals)
        hows.append(recorder.by(training.step, SMALL))
        expected.plain(SMALL)
        assert_same(training, expected)
    again = [DONE, DONE, CAPTURED] if enlarge == "train" else [CAPTURED, REPLAYED, REPLAYED]
    assert hows == [DONE, DONE, CAPTURED, *again]
    training.steps.reserve(LARGE, sparse=False)  # moves nothing
    assert recorder.by(training.step, SMALL) == REPLAYED


def test_each_slot_has_its_own_steps(device, recorder):
    training, expected = (Training(device) for _ in range(2))
    for n in range(8):
        how = recorder.by(training.step, SMALL, n % 2)
        expected.plain(SMALL, slot=n % 2)
    assert how == REPLAYED
    assert_same(training, expected)


def test_the_most_recently_used_steps_are_kept(device, recorder):
    training = Training(device)
    training.steps.reserve(MAX_CAPTURED + 1, sparse=False)
    for batch in range(1, MAX_CAPTURED + 1):
        for _ in range(IN_A_ROW):
            training.step(batch)
    gc.collect()
    assert len(recorder.kept) == MAX_CAPTURED
    assert recorder.by(training.step, 1) == REPLAYED
    hows = [recorder.by(training.step, MAX_CAPTURED + 1) for _ in range(IN_A_ROW)]
    assert hows == [DONE, DONE, CAPTURED]
    gc.collect()
    assert len(recorder.kept) == MAX_CAPTURED
    assert recorder.by(training.step, 1) == REPLAYED
    assert recorder.by(training.step, 2) == DONE  # the least recently used step


def test_the_batch_at_the_end_of_an_epoch_is_captured_after_several_epochs(device, recorder):
    training = Training(device)
    training.steps.reserve(LARGE, sparse=False)
    hows = []
    for _ in range(IN_ALL // 2 + 1):
        for batch in (LARGE, LARGE, LARGE, SMALL, SMALL):
            hows.append(recorder.by(training.step, batch))
    assert hows[:8] == [DONE, DONE, CAPTURED, DONE, DONE, REPLAYED, REPLAYED, REPLAYED]
    ends = [how for number, how in enumerate(hows) if number % 5 >= 3]
    assert ends == [*[DONE] * (IN_ALL - 1), CAPTURED, REPLAYED, REPLAYED]


def test_steps_continue_after_out_of_memory(monkeypatch):
    device = Limited(100_000)
    recorder = Recorder(device, monkeypatch)
    training, expected = Training(device), Training(HostDevice())
    for _ in range(3):
        training.step(SMALL)
        expected.plain(SMALL)
    with pytest.raises(MemoryError):
        training.steps.reserve(10_000, sparse=False)
    assert recorder.by(training.step, SMALL) == CAPTURED  # again, with new scratch arrays
    expected.plain(SMALL)
    assert_same(training, expected)


@pytest.mark.gpu
def test_a_rate_is_set_by_a_kernel_that_was_compiled_before(backend_named, imitation, monkeypatch):
    """CuPy compiles a kernel when it first fills an array of some type, except with 0."""
    import cupy

    compiled, fill = set(), cupy.ndarray.fill

    def note(array, value):
        if value != 0:
            compiled.add(array.dtype)
        fill(array, value)

    monkeypatch.setattr(cupy.ndarray, "fill", note)
    training = Training(backend_named("gpu").device)
    before = compiled.copy()
    training.step(SMALL)
    assert compiled == before
