import numpy as np
import pytest

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.data.order import epoch_order, order_of_parts, split, take


@pytest.mark.parametrize(("rows", "fraction", "testing"), [(10, 0.2, 2), (9, 0.2, 1), (3, 0.2, 0)])
def test_the_last_part_of_one_permutation_is_for_testing(rows, fraction, testing):
    train, test = split(rows, fraction)
    order = np.random.default_rng(0).permutation(rows)
    assert len(test) == testing
    np.testing.assert_array_equal(np.concatenate([train, test]), order, strict=True)


def test_the_seed_decides_the_split():
    classes = np.arange(1000, dtype=np.float32) % 3
    for own in (None, classes):
        tests = [set(split(1000, 0.2, seed, own)[1].tolist()) for seed in (0, 1, 1)]
        assert tests[1] == tests[2]
        assert len(tests[0] & tests[1]) < 100


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5, 0.99])
@pytest.mark.parametrize("sizes", [[900, 100], [5, 5, 5], [1, 1, 98], [997, 2, 1], [33] * 7, [6]])
def test_each_class_gives_its_share_of_the_test_rows(sizes, fraction):
    classes = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)), sizes))
    for seed in range(5):
        train, test = split(len(classes), fraction, seed, classes.astype(np.float32))
        assert sorted([*train, *test]) == list(range(len(classes)))
        tested = np.bincount(classes[test], minlength=len(sizes))
        exact = np.array(sizes) * int(len(classes) * fraction) / len(classes)
        assert (np.abs(tested - exact) < 1).all()
        assert (np.bincount(classes[train], minlength=len(sizes)) >= 1).all()
        if min(sizes) * (1 - fraction) > 1:  # no class is too small to round up
            assert len(test) == int(len(classes) * fraction)


def test_a_stratified_split_keeps_the_order_of_the_permutation():
    order = np.random.default_rng(4).permutation(50)
    train, test = split(50, 0.3, 4, np.zeros(50, np.float32))
    np.testing.assert_array_equal(np.concatenate([train, test]), order, strict=True)
    mixed = split(50, 0.3, 4, (np.arange(50) % 4).astype(np.float32))
    for part in mixed:
        places = np.argsort(order)[part]
        assert (np.diff(places) > 0).all()


def test_of_equal_classes_chance_decides_which_is_rounded_up():
    classes = np.repeat(np.arange(10), 3).astype(np.float32)
    found = {tuple(sorted(classes[split(30, 0.2, seed, classes)[1]])) for seed in range(20)}
    assert len(found) > 10


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


WEIGHTS = np.array([0, 1, 2.5, 0.25, 0, 7, 1, 1, 1, 0])


def test_with_weights_each_row_occurs_as_often_as_its_weight_says():
    exact = len(WEIGHTS) * WEIGHTS / WEIGHTS.sum()
    epochs = [
        np.bincount(epoch_order(10, 3, epoch, weights=WEIGHTS), minlength=10)
        for epoch in range(2000)
    ]
    for counts in epochs:
        assert counts.sum() == 10
        assert ((counts == np.floor(exact)) | (counts == np.ceil(exact))).all()
    np.testing.assert_allclose(np.mean(epochs, axis=0), exact, atol=0.04)


def test_with_weights_the_order_is_random_and_depends_only_on_seed_and_epoch():
    order = epoch_order(1000, 1, 2, weights=np.ones(1000))
    assert sorted(order) == list(range(1000)) != list(order)
    assert order.tolist() == epoch_order(1000, 1, 2, weights=np.full(1000, 7.5)).tolist()
    assert order.tolist() != epoch_order(1000, 1, 3, weights=np.ones(1000)).tolist()
    assert order.dtype == np.int64


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1e300])
def test_rows_without_weight_never_occur_whatever_the_unit(scale):
    weights = np.where(np.arange(777) % 3, 0.1, 0) * scale
    for epoch in range(50):
        assert (epoch_order(777, 0, epoch, weights=weights) % 3).all()


def test_with_weights_the_rows_that_are_to_come_last_do_not_occur():
    order = epoch_order(10, 3, 2, last=[5, 2, 5], weights=WEIGHTS)
    assert set(order) <= {1, 3, 6, 7, 8} and len(order) == 10
    assert set(epoch_order(3, 0, 0, last=[1], weights=np.array([0, 1, 0.0]))) == {1}


def test_parts_have_the_same_order_wherever_they_are():
    alone = {part: order_of_parts([part], 1, 2) for part in ((0, 7), (3, 0), (5, 9))}
    both = order_of_parts([(0, 7), (3, 0), (5, 9)], 1, 2)
    assert both.tolist() == [*alone[0, 7], *(alone[5, 9] + 7)]
    assert sorted(both) == list(range(16)) and both.dtype == np.int64


def test_parts_have_another_order_in_each_epoch_and_with_each_seed():
    orders = {
        (part, seed, epoch): tuple(order_of_parts([(part, 50)], seed, epoch))
        for part in range(3)
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(set(orders.values())) == 27
