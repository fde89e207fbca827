"""The arrays of a batch are parts of one array."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from hogbatch.kernels import reference
from hogbatch.kernels.scratch import ALIGNMENT, ScratchSpace
from hogbatch.model.network import Network

HALF = SimpleNamespace(  # a backend with short operands and masks
    operand_type=lambda params: np.dtype(np.uint16), mask_bytes=lambda width: 16 * -(-width // 128)
)
BATCH, SCORED = 21, 8


def make(kernels, activation="relu", hidden=(300, 60)):
    layers = Network.build(50, hidden, 9, activation, "softmax").layer_views()
    return ScratchSpace(kernels, np, layers, np.dtype(np.float32)), layers


def arrays_of(found):
    return [found.gathered, *found.activated, *found.grads, *found.masks]


@pytest.mark.parametrize("by_rows", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kernels", [reference, HALF], ids=["float32", "half"])
def test_arrays_have_their_shapes_and_types(kernels, by_rows):
    space, layers = make(kernels)
    found = space.arrays(BATCH, SCORED, by_rows=by_rows)
    operand = kernels.operand_type(np.dtype(np.float32))
    assert found.gathered.shape == (BATCH, 0 if by_rows else layers[0].fan_in)
    rows = BATCH, BATCH, SCORED
    shapes = [(count, view.fan_out) for count, view in zip(rows, layers, strict=True)]
    assert [each.shape for each in found.activated] == shapes
    assert [each.shape for each in found.grads] == shapes
    assert {each.dtype for each in (found.gathered, *found.grads)} == {operand}
    assert [each.dtype for each in found.activated] == [operand, operand, np.float32]
    widths = [0 if by_rows else kernels.mask_bytes(304), kernels.mask_bytes(64)]
    assert [each.shape for each in found.masks] == [(BATCH, width) for width in widths]
    assert {each.dtype for each in found.masks} == {np.dtype(np.uint8)}
    without, _ = make(kernels, "tanh")
    assert [each.size for each in without.arrays(BATCH, SCORED, by_rows=by_rows).masks] == [0, 0]


def test_arrays_are_aligned_and_do_not_overlap():
    space, _ = make(HALF)
    found = space.arrays(BATCH, SCORED, by_rows=False)
    spans = sorted((each.ctypes.data, each.nbytes) for each in arrays_of(found))
    assert all(begin + size <= after for (begin, size), (after, _) in pairwise(spans))
    assert all((begin - spans[0][0]) % ALIGNMENT == 0 for begin, _ in spans)


def test_the_values_are_the_inputs_of_all_layers():
    space, _ = make(HALF)
    found = space.arrays(BATCH, SCORED, by_rows=False)
    for each in (*found.activated, *found.grads):
        each[...] = 1
    found.values[...] = 2
    assert (found.gathered == 2).all()
    assert [(each == 2).all() for each in found.activated] == [True, True, False]
    assert not any((each == 2).any() for each in (found.activated[-1], *found.grads))


def test_a_part_has_the_masks_of_its_rows():
    found = make(HALF)[0].arrays(BATCH, SCORED, by_rows=False)
    for mask in found.masks:
        mask[...] = np.arange(BATCH)[:, None]
    part = found.part(slice(5, 9))
    assert [mask[:, 0].tolist() for mask in part.masks] == [[5, 6, 7, 8]] * 2
    assert len(part.activated[-1]) == 4 and part.values is part.activated[-2]
