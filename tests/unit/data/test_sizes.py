"""Sizes of sets of rows."""

from dataclasses import replace

import numpy as np
import pytest

from hogbatch.data.batch import single_labels
from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.sizes import SetSizes
from tests.support.assignments import examples


def test_the_sizes_of_a_set_bound_those_of_its_batches():
    rows = examples(20, sparse=True, several=True)
    sizes, stored, listed = (rows.sizes, *(np.diff(each[1]) for each in (rows.inputs, rows.labels)))
    assert sizes == SetSizes(
        20, rows.features, True, stored.sum(), stored.max(), True, listed.sum(), listed.max()
    )
    assert sizes.values == stored.sum()
    assert (sizes.stored_in(1), sizes.stored_in(100)) == (stored.max(), stored.sum())
    assert (sizes.listed_in(1), sizes.listed_in(100)) == (listed.max(), listed.sum())
    assert sizes.targets == 1
    dense = examples(4, sparse=False, several=False)
    assert dense.sizes == SetSizes(4, dense.features, False)
    assert dense.sizes.values == 4 * dense.features
    assert dense.sizes.stored_in(5) == dense.sizes.listed_in(5) == 0
    targets = single_labels(np.zeros(8, np.float32))
    assert replace(dense, labels=targets).sizes == replace(dense.sizes, targets=2)


def test_the_sum_of_parts_has_the_longest_row_of_all():
    sizes = SetSizes(4, 11, True, 11, 7, True, 3, 2, weighted=True, targets=2)
    other = replace(sizes, rows=1, stored=9, max_stored=9, listed=1, max_listed=1)
    assert SetSizes.sum([sizes, other], 20) == SetSizes(
        5, 20, True, 20, 9, True, 4, 2, weighted=True, targets=2
    )


def test_loaded_data_have_the_sizes_of_their_sets(write):
    path = write("lists.svm", "0,2 1:1\n2 2:1 3:2\n0,1,2 1:3\n1 4:1\n" * 5)
    loaded = load(path, fractions=Fractions(0.5))
    assert tuple(loaded.set_sizes.values()) == (loaded.train.sizes, loaded.sets["test"].sizes)
    assert loaded.mean_square == pytest.approx(np.square(loaded.train.inputs.values).sum() / 10)
    frequencies = np.bincount(loaded.train.labels.indices)
    assert loaded.label_frequencies.of_label.tolist() == frequencies.tolist()
    assert load(path, fractions=Fractions(0)).set_sizes.keys() == {"train"}
    assert load(write("a.svm", "1 1:1\n-1 1:2\n"), fractions=Fractions(0)).label_frequencies is None
