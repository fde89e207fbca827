"""Captured steps equal successive calls of `Executor.train_batch`."""

import gc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, SGD, TOTALS, Hyper
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.gpu.graph import MAX_CAPTURED, CapturedSteps
from hogbatch.model.network import Network
from tests.support.kernel_cases import csr_set, dense_set, labels_for, some_rows

FEATURES, CLASSES, ROWS = 9, 5, 40
NETWORK = Network.build(FEATURES, (12,), CLASSES, "sigmoid", "softmax")
LOSS = LOSSES["softmax"]
HYPER = Hyper(rate=0.05, l2=0.01, momentum=0.5, beta2=0.75, epsilon=0.01)
SMALL, LARGE = 6, 11  # rows of batches
DONE, CAPTURED, REPLAYED = "done", "captured", "replayed"  # how a step is run

optimizers = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
forms = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


@pytest.fixture(scope="module")
def device(device_kernels):
    device_kernels.device.enter()  # a graph cannot be captured on the default stream
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
    """A model on the device with the data of one slot or more, trained at random rows.

    The same arguments make the same numbers: trained one way they are the oracle of the other.
    """

    def __init__(self, device, optimizer=SGD, sparse=False, slots=1, seed=7):
        random, self.random = np.random.default_rng(seed), np.random.default_rng(seed + 1)
        self.device, self.optimizer = device, optimizer
        start = np.zeros(NETWORK.parameters, np.float32)
        NETWORK.initialise(start, seed)
        flat = [start, np.zeros_like(start), np.zeros_like(start)]
        self.flat = [device.to_device(each) for each in flat]
        self.network = Executor(device.kernels, device.xp, NETWORK.layer_views(), *self.flat)
        self.steps = CapturedSteps(device, self.network, LOSS, optimizer, HYPER._replace(rate=0.0))
        self.totals = device.zeros(TOTALS, np.float64)
        self.data = [self._data(random, sparse) for _ in range(slots)]
        self.rows = [{} for _ in range(slots)]  # one array for each slot and size
        self.updates = 0

    def _data(self, random, sparse):
        inputs = (csr_set if sparse else dense_set)(random, FEATURES, ROWS)
        labels = labels_for(random, LOSS, CLASSES, ROWS)
        return [type(each)(*map(self.device.to_device, each)) for each in (inputs, labels)]

    def next_rows(self, slot, batch):
        """Different rows each time, in the same array."""
        if batch not in self.rows[slot]:
            self.rows[slot][batch] = self.device.zeros(batch, np.int64)
        rows = self.rows[slot][batch]
        self.device.copy_into(rows, some_rows(self.random, batch, of=ROWS))
        return rows

    def hyper(self, rate):
        """The row numbers of the next update."""
        self.updates += 1
        return corrected(self.optimizer, HYPER._replace(rate=rate), self.updates)

    def step(self, batch, slot=0, rate=HYPER.rate):
        self.steps.set_rate(self.hyper(rate).rate)
        rows = self.next_rows(slot, batch)
        self.steps.train(slot, *self.data[slot], rows, rows, self.totals)

    def plain(self, batch, slot=0, rate=HYPER.rate):
        rows, hyper = self.next_rows(slot, batch), self.hyper(rate)
        kinds = LOSS, self.optimizer, hyper
        self.network.train_batch(*self.data[slot], rows, *kinds, self.totals)

    def numbers(self):
        """Parameters, slots and totals, on the host."""
        there = (*self.flat, self.totals)
        here = [np.empty(array.shape, array.dtype) for array in there]
        for array, out in zip(there, here, strict=True):
            self.device.to_host(array, out)
        return here


def assert_same(training, expected):
    for got, exact in zip(training.numbers(), expected.numbers(), strict=True):
        assert_allclose(got, exact, rtol=1e-4, atol=1e-6)


@forms
@optimizers
def test_captured_steps_train_like_single_batches(device, recorder, optimizer, sparse):
    training, expected = (Training(device, optimizer, sparse) for _ in range(2))
    training.steps.reserve(LARGE, sparse=sparse)
    for batch in (SMALL, SMALL, LARGE, SMALL, LARGE, SMALL, LARGE, LARGE):
        how = recorder.by(training.step, batch)
        expected.plain(batch)
        assert_same(training, expected)
    assert how == REPLAYED


def test_a_step_is_captured_the_second_time(device, recorder):
    training = Training(device)
    hows = [recorder.by(training.step, SMALL) for _ in range(4)]
    assert hows == [DONE, CAPTURED, REPLAYED, REPLAYED]


@forms
@optimizers
def test_a_new_rate_takes_effect_in_a_captured_step(device, recorder, optimizer, sparse):
    training, expected = (Training(device, optimizer, sparse) for _ in range(2))
    for rate in (0.05, 0.05, 0.05, 0.4, 0.05, 30.0, 0.0):  # with 30, rows are bounded
        before = training.numbers()[0]
        how = recorder.by(training.step, SMALL, 0, rate)
        expected.plain(SMALL, rate=rate)
        assert_same(training, expected)
        assert np.array_equal(training.numbers()[0], before) == (rate == 0)
    assert how == REPLAYED


def test_the_default_rate_is_zero(device):
    training = Training(device)
    before = training.numbers()[0]
    rows = training.next_rows(0, SMALL)
    training.steps.train(0, *training.data[0], rows, rows, training.totals)
    assert_array_equal(training.numbers()[0], before)
    assert training.numbers()[-1].any()  # though there was a loss


@forms
def test_a_larger_batch_discards_captured_steps_of_smaller_ones(device, recorder, sparse):
    training, expected = (Training(device, sparse=sparse) for _ in range(2))
    hows = []
    for batch in (SMALL, SMALL, SMALL, LARGE, SMALL, SMALL, SMALL):
        hows.append(recorder.by(training.step, batch))
        expected.plain(batch)
        assert_same(training, expected)
    assert hows == [DONE, CAPTURED, REPLAYED, DONE, DONE, CAPTURED, REPLAYED]


@pytest.mark.parametrize("enlarge", ["reserve", "evaluate"])
def test_reallocated_scratch_discards_captured_steps(device, recorder, enlarge):
    training, expected = (Training(device) for _ in range(2))
    for _ in range(3):
        training.step(SMALL)
        expected.plain(SMALL)
    if enlarge == "reserve":
        training.steps.reserve(1000, sparse=False)
    else:
        totals, rows = device.zeros(TOTALS, np.float64), training.next_rows(0, 1000)
        training.steps.evaluate(*training.data[0], rows, totals)
        expected.next_rows(0, 1000)
    assert recorder.by(training.step, SMALL) == DONE
    expected.plain(SMALL)
    assert_same(training, expected)


def test_unchanged_scratch_keeps_captured_steps(device, recorder):
    training = Training(device)
    for batch in (LARGE, SMALL, SMALL):
        training.step(batch)
    training.steps.reserve(LARGE, sparse=False)
    assert recorder.by(training.step, SMALL) == REPLAYED


def test_each_slot_has_its_own_steps(device, recorder):
    training, expected = (Training(device, slots=2) for _ in range(2))
    for n in range(8):
        how = recorder.by(training.step, SMALL, n % 2)
        expected.plain(SMALL, slot=n % 2)
    assert how == REPLAYED
    assert_same(training, expected)


def test_each_step_reads_the_slot_again(device, recorder):
    training, expected = (Training(device) for _ in range(2))
    for n in range(4):
        for each in (training, expected):
            dense = np.full((ROWS, FEATURES), n / 4, np.float32)
            device.copy_into(each.data[0][0].dense, dense)
        how = recorder.by(training.step, SMALL)
        expected.plain(SMALL)
    assert how == REPLAYED
    assert_same(training, expected)


def test_the_most_recently_used_steps_are_kept(device, recorder):
    training = Training(device)
    training.steps.reserve(MAX_CAPTURED + 1, sparse=False)
    for batch in range(1, MAX_CAPTURED + 1):
        training.step(batch)
        training.step(batch)
    gc.collect()
    assert len(recorder.kept) == MAX_CAPTURED
    assert recorder.by(training.step, 1) == REPLAYED
    assert recorder.by(training.step, MAX_CAPTURED + 1) == DONE
    gc.collect()
    assert len(recorder.kept) == MAX_CAPTURED - 1  # a step that ran once without capture counts too
    assert recorder.by(training.step, 1) == REPLAYED
    assert recorder.by(training.step, 2) == DONE  # the least recently used step


def test_evaluation_adds_the_totals_of_the_network(device):
    training = Training(device)
    rows, out = training.next_rows(0, LARGE), [np.zeros(TOTALS), np.zeros(TOTALS)]
    there = [device.zeros(TOTALS, np.float64) for _ in out]
    training.steps.evaluate(*training.data[0], rows, there[0])
    training.steps.evaluate(*training.data[0], rows, there[0])
    training.network.evaluate_batch(*training.data[0], rows, LOSS, there[1])
    for array, totals in zip(there, out, strict=True):
        device.to_host(array, totals)
    assert out[1].any()
    assert_allclose(out[0], 2 * out[1], rtol=1e-6)


def test_steps_continue_after_out_of_memory(recorder_of_host):
    device, recorder = recorder_of_host
    training, expected = Training(device), Training(HostDevice())
    for _ in range(3):
        training.step(SMALL)
        expected.plain(SMALL)
    with pytest.raises(MemoryError):
        training.steps.reserve(10_000, sparse=False)
    assert (
        recorder.by(training.step, SMALL) == DONE
    )  # captured steps were discarded with the scratch
    expected.plain(SMALL)
    assert_same(training, expected)


@pytest.fixture
def recorder_of_host(monkeypatch):
    """A host device with little memory."""
    device = HostDevice(memory_bytes=100_000)
    return device, Recorder(device, monkeypatch)
