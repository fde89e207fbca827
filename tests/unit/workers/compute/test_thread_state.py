"""Optimizer slots that a thread of a CPU worker shares, and those that it keeps to itself."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.data.batch import Examples, csr_inputs, single_labels
from hogbatch.workers.compute.thread_state import copy_slots, thread_state
from tests.support.assignments import assignment, wide


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_thread_copies_the_slots_of_dense_layers_alone(sparse):
    given = wide(sparse=sparse, hidden=(8, 6))
    for slot in (given.model.first, given.model.second):
        slot[:] = np.arange(1, slot.size + 1)
    first, second = thread_state(given, 0), thread_state(given, 1)
    assert first.model.own_first is given.model.first
    assert second.model.first is given.model.first and second.model.params is given.model.params
    shared = {"layers.2.weight", "layers.2.bias"}
    shared |= {"layers.0.weight", "layers.0.bias"} if sparse else set()
    pairs = (
        (second.model.own_first, given.model.first),
        (second.model.own_second, given.model.second),
    )
    for before in (0.0, np.nan):
        for own, slots in pairs:
            assert not np.shares_memory(own, slots)
            for tensor in given.network.tensors():
                copied = before if tensor.name in shared else tensor.view(slots)
                expected = np.broadcast_to(copied, tensor.shape)
                assert_array_equal(tensor.view(own), expected, err_msg=tensor.name)
            own[:] = np.nan
        copy_slots(given, first)  # the slots of the first thread are the shared ones
        copy_slots(given, second)
    assert_array_equal(given.model.first, np.arange(1, given.model.first.size + 1))
    assert (second.number, second.head.shape) == (1, (given.network.layer_views()[0].fan_in,))


def test_an_optimizer_without_slots_has_none_of_its_own():
    seat = thread_state(wide(optimizer="sgd"), 1)
    assert seat.model.own_first.size == seat.model.own_second.size == 0


def own_memory():
    """Bytes that this process has in memory and shares with no other."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_slots_of_a_sparse_layer_that_a_thread_does_not_use_take_no_memory():
    inputs = csr_inputs(np.arange(3), np.zeros(2, np.int32), np.ones(2, np.float32))
    rows = Examples(inputs, single_labels(np.array([0, 1], np.float32)), 1_000_000)
    given = assignment(rows, hidden=(16,), optimizer="adagrad")
    assert given.model.first.nbytes > 60e6
    before = own_memory()
    seat = thread_state(given, 1)
    assert own_memory() - before < 30e6, "4 MB of them are the list that begins at each feature"
    assert seat.model.own_first.size == given.model.first.size
