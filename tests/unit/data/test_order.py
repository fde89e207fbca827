import numpy as np
import pytest

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.data.order import epoch_order, split, take


@pytest.mark.parametrize(("rows", "fraction", "testing"), [(10, 0.2, 2), (9, 0.2, 1), (3, 0.2, 0)])
def test_the_last_part_of_one_permutation_is_for_testing(rows, fraction, testing):
    train, test = split(rows, fraction)
    order = np.random.default_rng(0).permutation(rows)
    assert len(test) == testing
    np.testing.assert_array_equal(np.concatenate([train, test]), order, strict=True)


def test_an_epochs_order_is_a_permutation_that_only_seed_and_epoch_decide():
    np.random.default_rng(5).random()
    orders = {(s, e): epoch_order(50, s, e).tolist() for s in range(3) for e in range(3)}
    assert all(sorted(order) == list(range(50)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 9
    assert orders[1, 2] == epoch_order(50, 1, 2).tolist()
    assert epoch_order(50, 0, 0).dtype == np.int64


def test_the_first_epoch_does_not_repeat_the_splits_permutation():
    assert epoch_order(50, 0, 0).tolist() != split(50, 0.0)[0].tolist()


def test_labels_are_copied_in_the_order_asked_for():
    single = single_labels(np.arange(4, dtype=np.float32))
    assert take(single, np.array([3, 0, 1])).values.tolist() == [3, 0, 1]
    lists = multi_labels(np.array([0, 1, 3, 3, 4]), np.array([5, 6, 7, 8], np.int32))
    part = take(lists, np.array([3, 0, 1]))
    assert part.indptr.tolist() == [0, 1, 2, 4]
    assert part.indices.tolist() == [8, 5, 6, 7]
    for old, new in zip(lists, part, strict=True):
        assert old.dtype == new.dtype
        assert not np.shares_memory(old, new)
    assert take(lists, np.empty(0, np.int64)).indptr.tolist() == [0]
    assert take(lists, None) is lists


def test_rows_that_are_to_come_last_do_and_the_others_keep_their_order():
    order = epoch_order(100, seed=3, epoch=2)
    changed = epoch_order(100, 3, 2, last=[7, 50, 2])
    assert set(changed[-3:]) == {7, 50, 2}
    assert list(changed[:-3]) == [row for row in order if row not in (7, 50, 2)]
