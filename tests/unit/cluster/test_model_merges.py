"""The part of one server in a merge, without the process that it belongs to."""

import numpy as np
import pytest
from msgspec.structs import replace

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.model_merges import ModelMerges
from hogbatch.coordinator.commands import MergeStep
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.wire.codec import decode_to_coordinator, encode
from tests.support.merging_servers import MemoryPlane, reduction

SIZE = 100


@pytest.fixture
def reduce():
    """Change the model, and sum the change with this weight; returns the answer."""
    segment = Segment.create("shared", arrange(SharedModel.fields(SIZE, 0)))
    model, buffers = SharedModel.of(segment), ExchangeBuffers.create(SIZE)
    tensors = [slice(0, 60), slice(60, SIZE)]
    merges = ModelMerges(model, tensors, buffers, MemoryPlane(buffers), 7)

    def reduce_alone(change, weight):
        model.params[:] += change
        asked = replace(reduction(weights=(weight,)), collect=True)
        return merges.carry_out(MergeStep(asked, leases=2, updates=4, rows=256))

    yield reduce_alone
    buffers.close()
    segment.close()


def test_the_squares_of_the_sum_are_returned(reduce):
    change = np.arange(SIZE, dtype=np.float32)
    answer = reduce(change, 0.5)
    squares = [float(change[part] @ change[part]) for part in (slice(0, 60), slice(60, SIZE))]
    assert answer.collected.squares == pytest.approx(squares)
    assert answer.squares == pytest.approx([0.25 * each for each in squares])
    assert (answer.collected.batch_size, answer.collected.updates) == (64, 4)


def test_squares_that_are_too_large_for_float32_can_be_sent(reduce):
    """Else the answer would be invalid, and all servers would seem not to answer."""
    answer = reduce(np.float32(1e18), 100.0)
    assert answer.collected.finite
    assert decode_to_coordinator(encode(answer)) == answer
    assert sum(answer.squares) == pytest.approx(1e42, rel=1e-3)
