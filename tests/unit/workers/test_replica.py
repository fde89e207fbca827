"""The exchange of a replica with the shared parameters, in numbers that float32 adds exactly."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.data.batch import csr_inputs
from hogbatch.kernels.contract import LINEAR
from hogbatch.kernels.gpu import device as host
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.layers import LayerView
from hogbatch.store.merge import DAMPING_SCALE, MERGE_RULES
from hogbatch.workers.replica import Replica
from tests.support.assignments import shared_model
from tests.support.limited_devices import Kernels, SimulatedTime, Unmapped, Unpinned
from tests.support.property_tests import max_examples

FEATURES, WIDTH, BIASES = 6, 2, 4
FIRST = LayerView(0, FEATURES * WIDTH, FEATURES, WIDTH, WIDTH, LINEAR)
PARAMETERS = FIRST.bias + BIASES
# Rows of a sparse set: the features 0 and 1; 1, 2 and 3; none; 3 and 5.
INDICES = np.array([0, 1, 1, 2, 3, 3, 5], np.int32)
INPUTS = csr_inputs(np.array([0, 2, 5, 5, 7]), INDICES, np.ones(7, np.float32))
ROWS = 4
FRACTIONS = [1.0, 0.5, 0.25]  # powers of two: products with them are exact

# Each number selects an update by a CPU worker, or one of the calls that are currently allowed.
scripts = st.lists(st.integers(0, 2**16 - 1), min_size=80, max_size=160)


@pytest.fixture
def model():
    """A model with integer parameters."""
    made = shared_model(PARAMETERS, 2)
    made.params[:] = np.random.default_rng(0).integers(-100, 100, PARAMETERS)
    return made


def make(model, rule="delta", *, by_rows=False, device=None, per_weight=False):
    """A replica of `model`."""
    made = Replica(device or HostDevice(), model, rule, per_weight=per_weight)
    if by_rows:
        assert made.exchange_touched_rows(FIRST, INPUTS)
    else:
        made.exchange_all()
    made.reset()
    return made


def reach(rows):
    """The cells of the parameters that training on `rows` may change, including all biases."""
    listed = [INDICES[INPUTS.indptr[row] : INPUTS.indptr[row + 1]] for row in rows]
    features = np.unique(np.concatenate(listed)).astype(int)
    weights = features[:, None] * WIDTH + np.arange(WIDTH)
    return np.concatenate((weights.ravel(), np.arange(FIRST.bias, PARAMETERS)))


class Threads:
    """Both threads of a worker with its replica; `calls` are the calls allowed next.

    `merged` is the sum of what it has added to the shared parameters.
    """

    def __init__(self, model, by_rows, device):
        self.shared, self.by_rows = model.params, by_rows
        self.replica = make(model, by_rows=by_rows, device=device)
        self.training, self.exchange, self.refused = "idle", "free", False
        self.own, self.taken, self.merged = (np.zeros(PARAMETERS) for _ in range(3))

    def calls(self):
        free = self.exchange == "free"
        if free and self.refused:
            return [self.forget]
        training = {
            "idle": [self.begin, self.begin, self.refresh] if free else [],
            "under way": [self.train, self.train, self.drop, *[self.hand_over] * 2 * free],
        }
        exchange = {"free": [], "taken": [*[self.merge] * 3, self.refuse], "merged": [self.fetch]}
        return [*training[self.training], *exchange[self.exchange]]

    def settle(self):
        """Complete all pending exchanges."""
        for step in ("merge", "fetch", "forget", "hand_over", "merge", "fetch"):
            if getattr(self, step) in self.calls():
                getattr(self, step)(0)
        assert self.training == "idle" and self.exchange == "free"

    def begin(self, n):
        rows, self.cells = self._choose(n)
        self.replica.begin(rows)
        assert_array_equal(self.replica.params[self.cells], self.shared[self.cells])
        self.training = "under way"

    def refresh(self, n):
        self.replica.refresh()
        assert_array_equal(self.replica.params, self.shared)

    def train(self, n):
        cell = self.cells[n % len(self.cells)]
        self.replica.params[cell] += 4 * (n - 100)
        self.own[cell] += 4 * (n - 100)

    def drop(self, n):
        self.replica.discard()
        self.own[:], self.training = 0, "idle"

    def hand_over(self, n):
        rows, self.cells = self._choose(n) if n % 5 else (None, None)
        self.replica.hand_over(rows)
        assert self.replica.finite[0] == 1
        self.taken, self.own = self.own, np.zeros(PARAMETERS)
        self.exchange, self.training = "taken", "idle" if rows is None else "under way"

    def forget(self, n):
        self.replica.reset()
        self.own[:], self.training, self.refused = 0, "idle", False

    def merge(self, n):
        fraction = FRACTIONS[n % len(FRACTIONS)]
        self.replica.merge(fraction)
        self.merged += fraction * self.taken
        self.exchange = "merged"

    def refuse(self, n):
        self.exchange, self.refused = "merged", True

    def fetch(self, n):
        self.replica.fetch()
        self.exchange = "free"

    def _choose(self, n):
        """The rows of an interval, and the cells that it may change."""
        rows = np.unique([n % ROWS, n // ROWS % ROWS])
        return rows, reach(rows) if self.by_rows else np.arange(PARAMETERS)


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])
@pytest.mark.parametrize(
    ("by_rows", "adds"),
    [(False, Unpinned), (False, HostDevice), (True, HostDevice)],
    ids=["by the host", "by the device", "by rows"],
)
@max_examples(25)
@given(script=scripts)
def test_delta_merges_lose_no_update(adds, by_rows, workers, script):
    model = shared_model(PARAMETERS)
    model.params[:] = np.arange(PARAMETERS)
    expected = model.params.astype(float)
    crew = [Threads(model, by_rows, adds()) for _ in range(workers)]
    for n in script:
        choice, n = divmod(n, 256)
        may = [call for threads in crew for call in threads.calls()]
        if choice % 4 == 0:
            model.params[n % PARAMETERS] += n
            expected[n % PARAMETERS] += n
        else:
            may[choice % len(may)](n)
    for threads in crew:
        threads.settle()
    assert_array_equal(model.params, expected + sum(threads.merged for threads in crew))
    for threads in crew:
        threads.refresh(0)


def one_interval(replica, change, rows=(0, 3)):
    """Train an interval that changes the replica by `change`, and take the change."""
    replica.begin(np.array(rows))
    replica.params[:] += change
    replica.hand_over(None)


def test_average_keeps_half_of_each_side(model):
    start, replica = model.params.copy(), make(model, "average")
    assert not replica.exchange_touched_rows(FIRST, INPUTS)
    one_interval(replica, 4)
    model.params[:] += 16
    replica.merge(0.5)
    assert_array_equal(model.params, start + 10)


@pytest.mark.parametrize("device", [Unmapped(), Unpinned()], ids=["not mapped", "not pinned"])
def test_touched_rows_are_exchanged_only_in_mapped_memory(model, device):
    assert not make(model, device=device).exchange_touched_rows(FIRST, INPUTS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("by_rows", "cell"), [(False, 5), (True, 0), (True, PARAMETERS - 1)])
def test_a_change_that_is_not_finite_is_flagged_and_discarded(model, by_rows, cell, bad):
    replica = make(model, by_rows=by_rows)
    change = np.zeros(PARAMETERS, np.float32)
    change[cell] = bad
    one_interval(replica, change)
    assert replica.finite[0] == 0
    replica.reset()
    one_interval(replica, 0)
    assert replica.finite[0] == 1
    replica.merge(1.0)
    assert np.isfinite(model.params).all()


def test_only_touched_rows_are_exchanged(model):
    replica = make(model, by_rows=True)
    start, touched = model.params.copy(), reach([3])
    replica.begin(np.array([3]))
    replica.params += 1  # rows that the interval does not touch are not read
    replica.hand_over(None)
    replica.merge(1.0)
    changed = np.zeros(PARAMETERS)
    changed[touched] = 1
    assert_array_equal(model.params, start + changed)


def test_totals_are_those_of_the_interval(model):
    replica = make(model)
    replica.totals += 5
    replica.hand_over(None)
    replica.totals += 3
    assert (replica.taken_totals == 5).all() and (replica.totals == 3).all()
    replica.discard()
    assert not replica.totals.any()


@pytest.mark.parametrize(
    ("rule", "by_rows", "device"),
    [
        ("delta", True, HostDevice),
        *((rule, False, device) for rule in MERGE_RULES for device in (HostDevice, Unmapped)),
    ],
)
def test_measuring_never_writes_to_shared_memory(model, rule, by_rows, device):
    model.first[:] = 1
    for array in (model.params, model.first):  # writing equal values could lose an update
        array.flags.writeable = False
    replica = make(model, rule, by_rows=by_rows, device=device())
    cost = replica.measure_merge(np.arange(ROWS))
    assert cost.blocking > 0 and cost.background > 0
    replica.begin(np.array([0, 3]))
    assert_array_equal(replica.params[reach([0, 3])], model.params[reach([0, 3])])
    assert (replica.slots[0] == 1).all()
    # Of this pull only; that of rows is counted later.
    assert replica.transfers.bytes == (4 * PARAMETERS if not by_rows else 4 * BIASES)
    with pytest.raises(ValueError, match="read-only"):
        replica.merge(1.0)  # shows that this test can fail


@pytest.fixture
def simulated(monkeypatch):
    """The time of the host and of its devices."""
    made = SimulatedTime()
    monkeypatch.setattr(host, "time", made)
    return made


def test_less_is_added_to_parameters_that_others_changed_since_the_interval_began(model):
    """Also for those that the replica fetched during the interval."""
    model.params[:] = 0
    replica = make(model, per_weight=True)
    assert replica.damps_weights
    replica.begin(np.arange(ROWS))
    replica.params[:] += 1  # the first interval
    replica.hand_over(None)
    replica.params[:] += 3  # the second interval, in which
    replica.merge(1.0)  # the first change is merged: others have changed nothing
    assert_array_equal(model.params, 1)
    model.params[:] += DAMPING_SCALE  # others
    replica.fetch()
    replica.hand_over(None)
    model.params[:] += 2 * DAMPING_SCALE
    expected = model.params + 3 / (1 + 3)
    replica.merge(1.0)
    assert_allclose(model.params, expected, rtol=1e-4)
    replica.fetch()
    replica.hand_over(None)
    assert_allclose(replica.params, expected, rtol=1e-4)


def test_what_is_missing_of_its_own_change_is_no_change_by_others(model):
    model.params[:] = 0
    replica = make(model, per_weight=True)
    replica.begin(np.arange(ROWS))
    replica.params[:] += 4
    replica.hand_over(None)
    model.params[:] += 3 * DAMPING_SCALE  # others: a quarter of the change is added
    replica.merge(1.0)
    replica.fetch()
    replica.params[:] += 2  # the second interval, which contains all of the first change
    before = model.params.copy()
    replica.hand_over(None)
    replica.merge(1.0)
    assert_allclose(model.params, before + 2 / (1 + 3), rtol=1e-4)  # those of the others again
    replica.fetch()
    replica.params[:] += 2  # the third interval began with what the first merge left
    before = model.params.copy()
    replica.hand_over(None)
    replica.merge(1.0)
    assert_allclose(model.params, before + 2, rtol=1e-4)


def test_changes_that_the_host_adds_are_not_damped_by_weights(model):
    assert not make(model, per_weight=True, device=Unpinned()).damps_weights


DEVICE_WORK = "hand_over", "add", "take_rows", "rejoin_rows", "add_rows"


@pytest.mark.parametrize("slow", DEVICE_WORK)
def test_the_cost_of_a_merge_includes_that_of_the_device(model, simulated, slow):
    def sleep(*arguments):
        simulated.sleep(0.02)
        getattr(HostDevice.kernels, slow)(*arguments)

    device, by_rows = HostDevice(), slow.endswith("_rows")
    device.kernels = Kernels(**{slow: sleep})
    replica = make(model, by_rows=by_rows, device=device)
    cost = replica.measure_merge(np.arange(ROWS))
    assert (cost.background >= 0.02) == slow.startswith("add")
    assert (cost.blocking >= 0.02) != slow.startswith("add")


PULLED_AND_MERGED = 4 + 3 + 2 * 4  # rows: pulled for both intervals; merged: read and written


@pytest.mark.parametrize(
    ("by_rows", "adds", "cells"),
    [
        (False, Unpinned, PARAMETERS * (1 + 2)),  # a change and two pulls
        (False, HostDevice, PARAMETERS * (2 + 1)),  # the device reads, writes, and pulls once
        (True, HostDevice, PULLED_AND_MERGED * WIDTH + BIASES * (2 + 1)),
    ],
)
def test_transfers_are_counted(model, by_rows, adds, cells):
    replica = make(model, by_rows=by_rows, device=adds())
    for _ in range(2):
        replica.begin(np.array([0, 3]))
        replica.hand_over(np.array([1]))
        replica.merge(1.0)
        replica.fetch()
        transfers = replica.transfers.take()
        assert transfers.bytes == 4 * cells and transfers.seconds > 0
    replica.refresh()
    assert replica.transfers.take().bytes == 4 * PARAMETERS


@pytest.mark.parametrize("by_rows", [False, True], ids=["whole", "touched rows"])
def test_sums_of_a_sparse_layer_are_exchanged_and_other_slots_are_not(model, by_rows):
    model.first[:] = np.arange(PARAMETERS)
    made = [Replica(HostDevice(), model, "delta", sums=FEATURES * WIDTH) for _ in range(2)]
    for one in made:
        assert not by_rows or one.exchange_touched_rows(FIRST, INPUTS)
        _ = by_rows or one.exchange_all()
        one.reset()
    start, rows = model.first.copy(), np.array([0, 3])
    for _ in range(2):  # the second time starts from the merged values
        for one in made:
            one.begin(rows)
            one.slots[0][:] += 1
            one.hand_over(None)
        for one in made:
            one.merge(1.0)
            one.fetch()
    cells = reach(rows)
    weights = cells[cells < FEATURES * WIDTH]
    expected = start.copy()
    expected[weights if by_rows else slice(FEATURES * WIDTH)] += 4
    assert_array_equal(model.first, expected)
    for one in made:
        one.reset()
        one.begin(rows)
        assert_array_equal(one.slots[0][weights], expected[weights])


def test_sums_are_not_exchanged_with_average(model):
    replica = Replica(HostDevice(), model, "average", sums=FEATURES * WIDTH)
    replica.exchange_all()
    replica.begin(None)
    replica.slots[0][:] = 9
    replica.hand_over(None)
    replica.merge(1.0)
    assert not model.first.any()
