"""The arrays of a batch are parts of one array."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from hogbatch.kernels.scratch import ALIGNMENT, ScratchSpace
from hogbatch.model.network import Network

HALF = SimpleNamespace(operand_type=lambda params: np.dtype(np.uint16))  # short operands
BATCH, SCORED = 21, 8


@pytest.fixture
def found():
    """The arrays of a batch."""
    layers = Network.build(50, (300, 60), 9, "relu", "softmax").layer_views()
    return ScratchSpace(HALF, np, layers, np.dtype(np.float32)).arrays(BATCH, SCORED, by_rows=False)


def test_arrays_are_aligned_and_do_not_overlap(found):
    arrays = [found.gathered, *found.activated, *found.grads]
    spans = sorted((each.ctypes.data, each.nbytes) for each in arrays)
    assert all(begin + size <= after for (begin, size), (after, _) in pairwise(spans))
    assert all((begin - spans[0][0]) % ALIGNMENT == 0 for begin, _ in spans)


def test_the_values_are_the_inputs_of_all_layers(found):
    for each in (*found.activated, *found.grads):
        each[...] = 1
    found.values[...] = 2
    assert (found.gathered == 2).all()
    assert [(each == 2).all() for each in found.activated] == [True, True, False]
    assert not any((each == 2).any() for each in (found.activated[-1], *found.grads))


def test_a_part_has_the_arrays_of_its_rows(found):
    for each in found.activated[:-1]:
        each[...] = np.arange(BATCH)[:, None]
    part = found.part(slice(5, 9))
    assert [each[:, 0].tolist() for each in part.activated[:-1]] == [[5, 6, 7, 8]] * 2
    assert len(part.activated[-1]) == 4 and part.values is part.activated[-2]
