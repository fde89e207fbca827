"""Which optimizer slots a thread of a CPU worker shares, and which it keeps to itself."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.unit.workers.assignments import wide
from workers.seat import seat_for


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_thread_has_its_own_slots_of_dense_layers_alone(sparse):
    given = wide(sparse=sparse, hidden=(8, 6))
    for slot in (given.model.first, given.model.second):
        slot[:] = np.arange(1, slot.size + 1)
    first, second = seat_for(given, 0), seat_for(given, 1)
    assert first.model.own_first is given.model.first
    assert second.model.first is given.model.first and second.model.params is given.model.params
    shared = {"layers.2.weight", "layers.2.bias"}
    shared |= {"layers.0.weight", "layers.0.bias"} if sparse else set()
    for own, slots in (
        (second.model.own_first, given.model.first),
        (second.model.own_second, given.model.second),
    ):
        assert not np.shares_memory(own, slots)
        for tensor in given.network.tensors():
            kept = np.zeros(tensor.shape) if tensor.name in shared else tensor.view(slots)
            assert_array_equal(tensor.view(own), kept, err_msg=tensor.name)
    assert (second.number, second.head.shape) == (1, (given.network.plan()[0].fan_in,))


def test_an_optimizer_without_slots_has_none_of_its_own():
    seat = seat_for(wide(optimizer="sgd"), 1)
    assert seat.model.own_first.size == seat.model.own_second.size == 0
