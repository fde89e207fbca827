"""Random arguments for operations, generated from a few integers so that examples shrink quickly.

Stored numbers are multiples of 1/8 within ±4: their sums are exact in float32, so backends that
add in different orders agree.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from hogbatch.data.batch import csr_inputs, dense_inputs, multi_labels, single_labels
from hogbatch.kernels.contract import (
    BINARY,
    LABEL_LISTS,
    LOSSES,
    NORMALISED,
    POISSON,
    TOTALS,
    Hyper,
    Slots,
)
from hogbatch.store.layout import stored_width
from tests.support.property_tests import max_examples

examples = max_examples(15)

FORMS = {"dense": False, "sparse": True}  # of inputs, as an axis of pairs()
SET = 7  # rows of the sets that batches are taken from
NONE = np.empty((0, 0), np.float32)
HYPER = Hyper(rate=0.25, l2=0.125, momentum=0.5, beta2=0.75, epsilon=0.01)


class Shape(NamedTuple):
    """Batch size, inputs and outputs of a layer without padding, and the seed of all numbers."""

    batch: int
    fan_in: int
    width: int
    seed: int

    @property
    def random(self):
        return np.random.default_rng(self.seed)


# Near multiples of SIMD registers, tiles and blocks; batches larger than the set repeat rows.
_widths = st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 33, 70])
shapes = st.builds(
    Shape, st.sampled_from([1, 2, 3, 6, 7, 8, 13, 17]), _widths, _widths, st.integers(0, 2**32 - 1)
)


def numbers(random, *shape):
    return (random.integers(-32, 33, shape) / 8).astype(np.float32)


def padded(random, height, width, stored_height=None):
    """Random numbers in [height, width], stored with zero padding to the right and below."""
    array = np.zeros((stored_height or height, stored_width(width)), np.float32)
    array[:height, :width] = numbers(random, height, width)
    return array


def weights_and_bias(random, fan_in, width):
    weights = padded(random, fan_in, width, stored_width(fan_in))
    return weights, padded(random, 1, width)[0]


def junk(*shape):
    """An array of NaN, for outputs that must be overwritten."""
    return np.full(shape, np.nan, np.float32)


def some_rows(random, batch, of=SET):
    return random.integers(0, of, batch).astype(np.int64)


def dense_set(random, features, rows=SET):
    return dense_inputs(numbers(random, rows, features))


def csr_set(random, features, rows=SET):
    """Sparse rows; the first is empty, the last is full."""
    stored = random.random((rows, features)) < 0.4
    stored[0], stored[-1] = False, True
    indptr = np.concatenate(([0], np.cumsum(stored.sum(axis=1)))).astype(np.int64)
    indices = np.nonzero(stored)[1].astype(np.int32)
    return csr_inputs(indptr, indices, numbers(random, len(indices)))


def read_only(arrays):
    """The same Inputs or Labels as a worker maps them: another type of argument for Numba."""
    views = [array.view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return type(arrays)(*views)


def toarray(inputs, features):
    """CSR rows as a dense matrix, by a simple loop."""
    dense = np.zeros((len(inputs.indptr) - 1, features), np.float32)
    for row in range(len(dense)):
        for position in range(inputs.indptr[row], inputs.indptr[row + 1]):
            dense[row, inputs.indices[position]] += inputs.values[position]
    return dense


def score_width(loss, width):
    """Real columns of the scores of a loss, given that of a layer."""
    return 1 if loss in BINARY else width


def labels_for(random, loss, width, rows=SET, *, weighted=False):
    """Labels of every row; of the multi-label rows the first has none and the last has all."""
    if weighted:
        weights = (random.integers(1, 9, rows) / 4).astype(np.float32)
        return labels_for(random, loss, width, rows)._replace(weights=weights)
    if loss in LABEL_LISTS:
        lists = csr_set(random, width, rows)
        return multi_labels(lists.indptr, lists.indices)
    if loss not in (*BINARY, *NORMALISED):
        targets = numbers(random, rows * width)
        return single_labels(abs(targets) if loss == POISSON else targets)
    classes = width if loss in NORMALISED else 2
    return single_labels(random.integers(0, classes, rows).astype(np.float32))


def slots_for(optimizer_slots, tensor):
    """Initial optimizer state for a tensor: one array for each slot, [0, 0] for unused slots."""
    return Slots(*(np.zeros_like(tensor) if n < optimizer_slots else NONE for n in range(2)))


def totals():
    return np.zeros(TOTALS)


losses = st.sampled_from(sorted(LOSSES.values()))
