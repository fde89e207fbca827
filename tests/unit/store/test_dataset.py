from weakref import ref

import numpy as np
import pytest

from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, multi_labels, single_labels
from hogbatch.data.order import take
from hogbatch.data.scale import scaled
from hogbatch.store import dataset
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment


def dense(rows):
    values = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    return Examples(dense_inputs(values), single_labels(values[:, :2].flatten()), 3)


def sparse(rows):
    indptr = np.arange(0, 2 * rows + 1, 2, dtype=np.int64)
    indices = np.tile(np.array([0, 2], np.int32), rows)
    inputs = csr_inputs(indptr, indices, np.arange(2 * rows, dtype=np.float32))
    weights = np.linspace(0.5, 1.5, rows, dtype=np.float32)
    return Examples(inputs, multi_labels(indptr, indices)._replace(weights=weights), 3)


def stored(**sets):
    segment = Segment.create("data", arrange(dataset.fields(sizes_of(sets))))
    dataset.fill(segment, [sets])
    return segment


def sizes_of(sets):
    return {name: rows.sizes for name, rows in sets.items()}


def expect_sets(segment, **sets):
    """The segment has just these sets."""
    found = dataset.sets_of(segment, 3)
    assert found.keys() == sets.keys()
    assert all(same(found[name], rows) for name, rows in sets.items())


def same(left, right):
    return left.features == right.features and all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in zip(left.inputs + left.labels, right.inputs + right.labels, strict=True)
    )


@pytest.mark.parametrize("examples", [dense, sparse])
@pytest.mark.parametrize("held_out", [(), ("test",), ("validation", "test")])
def test_sets_come_back_as_they_went_in(examples, held_out):
    sets = {"train": examples(5), **{name: examples(n + 2) for n, name in enumerate(held_out)}}
    segment = stored(**sets)
    expect_sets(segment, **sets)
    segment.close()


def test_neighbouring_epochs_have_orders_of_their_own():
    segment = Segment.create("shared", arrange(EpochOrders.fields(4)))
    orders = EpochOrders.attach(segment)
    orders.row_order(0)[:] = [0, 1, 2, 3]
    orders.row_order(1)[:] = [3, 2, 1, 0]
    again = EpochOrders.attach(segment)
    assert again.row_order(0).tolist() == again.row_order(2).tolist() == [0, 1, 2, 3]
    assert again.row_order(1).tolist() == [3, 2, 1, 0]
    assert again.row_order(1).dtype == np.int64
    segment.close()


@pytest.mark.parametrize("examples", [dense, sparse])
def test_sets_that_are_filled_in_turn_are_those_of_all_rows(examples):
    train, test = examples(7), examples(3)
    pieces = [{"train": rows(train, 0, 4), "test": rows(test, 0, 3)}, {"train": rows(train, 4, 5)}]
    pieces += [{}, {"train": rows(train, 5, 7)}]
    sets = {"train": train, "test": test}
    segment = Segment.create("data", arrange(dataset.fields(sizes_of(sets))))
    dataset.fill(segment, pieces)
    expect_sets(segment, **sets)
    segment.close()


def rows(examples, start, stop):
    """The rows [start, stop) of `examples`."""
    own = np.arange(start, stop)
    labels = take(examples.labels, own, examples.targets)
    return Examples(scaled(examples.inputs, None, own), labels, 3)


def test_a_piece_is_released_before_the_next_one_is_read():
    alive = []

    def pieces():
        for _ in range(2):
            assert not any(reference() for reference in alive)
            piece = dense(4)
            alive.append(ref(piece.inputs.dense))
            sets = {"train": piece}
            del piece
            yield sets
            del sets

    segment = Segment.create("data", arrange(dataset.fields({"train": dense(8).sizes})))
    dataset.fill(segment, pieces())
    assert len(alive) == 2
    segment.close()
