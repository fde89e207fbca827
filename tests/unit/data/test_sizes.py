"""Sizes of sets of rows."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, multi_labels, single_labels
from hogbatch.data.load import load
from hogbatch.data.sizes import SetSizes

INDPTR = np.array([0, 3, 3, 10, 11])


def sparse_lists():
    inputs = csr_inputs(INDPTR, np.arange(11, dtype=np.int32), np.ones(11, np.float32))
    lists = np.array([0, 1, 1, 3, 3])
    return Examples(inputs, multi_labels(lists, np.array([0, 0, 1], np.int32)), 11)


def dense_singles():
    inputs = dense_inputs(np.zeros((4, 5), np.float32))
    return Examples(inputs, single_labels(np.zeros(4, np.float32)), 5)


def test_the_sizes_of_sparse_rows_count_what_is_stored():
    sizes = sparse_lists().sizes
    assert sizes == SetSizes(4, 11, True, 11, 7, True, 3, 2)
    assert sizes.values == 11


def test_the_sizes_of_dense_rows_have_no_stored_values():
    sizes = dense_singles().sizes
    assert sizes == SetSizes(4, 5, False)
    assert sizes.values == 20


def test_stored_values_of_a_batch_are_bounded_by_the_longest_row_and_by_all():
    sizes = sparse_lists().sizes
    assert (sizes.stored_in(1), sizes.stored_in(100)) == (7, 11)
    assert (sizes.listed_in(1), sizes.listed_in(100)) == (2, 3)
    assert dense_singles().sizes.stored_in(5) == dense_singles().sizes.listed_in(5) == 0


def test_the_sum_of_parts_has_the_longest_row_of_all():
    sizes = sparse_lists().sizes
    other = replace(sizes, rows=1, stored=9, max_stored=9, listed=1, max_listed=1)
    assert SetSizes.sum([sizes, other], 20) == SetSizes(5, 20, True, 20, 9, True, 4, 2)


def test_sizes_can_be_sent():
    sizes = sparse_lists().sizes
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sizes), type=SetSizes) == sizes


def test_loaded_data_have_the_sizes_of_their_sets(tmp_path):
    path = tmp_path / "lists.svm"
    path.write_text("0,2 1:1\n2 2:1 3:2\n0,1,2 1:3\n1 4:1\n" * 5)
    loaded = load(path, test_fraction=0.5)
    assert (loaded.train_sizes, loaded.test_sizes) == (loaded.train.sizes, loaded.test.sizes)
    assert loaded.mean_square == pytest.approx(np.square(loaded.train.inputs.values).sum() / 10)
    frequencies = np.bincount(loaded.train.labels.indices)
    assert loaded.label_frequencies.tolist() == frequencies.tolist()
    assert load(path, test_fraction=0).test_sizes is None
    assert load("a9a").label_frequencies is None
