import numpy as np
import pytest

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.data.order import (
    Fractions,
    Groups,
    Window,
    epoch_order,
    order_of_parts,
    split,
    take,
    validation_rows,
)
from hogbatch.errors import DataError


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.99])
@pytest.mark.parametrize("sizes", [[900, 100], [5, 5, 5], [1, 1, 98], [997, 2, 1], [33] * 7, [6]])
def test_each_class_gives_its_share_of_the_rows_that_are_held_out(sizes, fraction):
    classes = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)), sizes))
    for seed in range(3):
        sets = split(len(classes), Fractions(fraction, fraction), seed, classes.astype(np.float32))
        assert sorted(np.concatenate([*sets.values()])) == list(range(len(classes)))
        rest, present = len(classes), np.array(sizes)
        for name in ("test", "validation"):
            held_out = np.bincount(classes[sets.get(name, [])], minlength=len(sizes))
            exact = present * int(rest * fraction) / rest
            assert (np.abs(held_out - exact) < 1).all()
            if present.min() * (1 - fraction) > 1:  # no class is too small to round up
                assert held_out.sum() == int(rest * fraction)
            rest, present = rest - held_out.sum(), present - held_out
        assert (np.bincount(classes[sets["train"]], minlength=len(sizes)) >= 1).all()


def test_a_stratified_split_keeps_the_order_of_the_permutation():
    order, fractions = np.random.default_rng(4).permutation(50), Fractions(0.3, 0.2)
    one = split(50, fractions, 4, np.zeros(50, np.float32))
    assert list(one) == ["train", "validation", "test"]
    np.testing.assert_array_equal(np.concatenate([*one.values()]), order, strict=True)
    for part in split(50, fractions, 4, (np.arange(50) % 4).astype(np.float32)).values():
        assert (np.diff(np.argsort(order)[part]) > 0).all()


def test_validation_rows_leave_the_test_rows_as_they_are():
    known, fewer = (split(90, Fractions(0.2, each), 1) for each in (0.0, None))
    np.testing.assert_array_equal(known["test"], fewer["test"])
    assert set(known["train"]) == {*fewer["train"], *fewer["validation"]}
    as_validation = split(90, Fractions(0, 0.2), 1)  # as benchmarks are measured
    np.testing.assert_array_equal(as_validation["validation"], known["test"])
    np.testing.assert_array_equal(as_validation["train"], known["train"])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, 0), (7, 3), (60, 30), (100, 50), (249, 50), (300, 60), (9999, 1999), (10_000, 1000)],
)
def test_validation_rows_are_a_tenth_but_not_too_few_and_at_most_half(rows, expected):
    assert validation_rows(rows) == expected
    assert len(split(rows, Fractions(0, None)).get("validation", ())) == expected


def test_of_equal_classes_chance_decides_which_is_rounded_up():
    classes = np.repeat(np.arange(10), 3).astype(np.float32)
    splits = [split(30, Fractions(0.2), seed, classes) for seed in range(20)]
    assert len({tuple(sorted(classes[each["test"]])) for each in splits}) > 10


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("sizes", [[1] * 200, [500, *[1] * 300], [6, 70, 12, 40, 3, 30, 25, 9, 5]])
def test_no_group_has_rows_in_two_sets(sizes, ordered):
    numbers = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)), sizes))
    sets = split(len(numbers), Fractions(0.2, 0.2), 1, groups=Groups(numbers, "g", ordered))
    assert sorted(np.concatenate([*sets.values()])) == list(range(len(numbers)))
    train, validation, test = (set(numbers[own]) for own in sets.values())
    assert len(train) + len(validation) + len(test) == len(sizes)
    assert abs(len(sets["test"]) / len(numbers) - 0.2) < 0.1
    if ordered:
        assert max(train) < min(validation) <= max(validation) < min(test)
    else:
        assert max(train) > min(test) and (max(sizes) < 500 or 0 in train)


def test_a_split_by_groups_needs_a_group_for_each_set():
    groups = Groups(np.arange(10) % 2, "a.csv: column 'g'")
    assert [len(each) for each in split(10, Fractions(0.5), groups=groups).values()] == [5, 5]
    with pytest.raises(DataError, match=r"a\.csv: column 'g': expected different .* got 2 in all"):
        split(10, Fractions(0.2, None), groups=groups)


def test_an_epochs_order_is_a_permutation_that_only_seed_and_epoch_decide():
    orders = {(s, e): epoch_order(50, s, e) for s in range(3) for e in range(3)}
    assert all(sorted(order) == list(range(50)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 9
    again = epoch_order(50, 1, 2)
    np.testing.assert_array_equal(again, orders[1, 2], strict=True)
    assert again.dtype == np.int64
    assert (
        epoch_order(50, 0, 0).tolist() != split(50, Fractions(0))["train"].tolist()
    )  # streams of their own


def test_labels_are_copied_in_the_order_asked_for():
    single = single_labels(np.arange(4, dtype=np.float32))
    assert take(single, np.array([3, 0, 1])).values.tolist() == [3, 0, 1]
    assert take(single, np.array([1, 0]), targets=2).values.tolist() == [2, 3, 0, 1]
    lists = multi_labels(np.array([0, 1, 3, 3, 4]), np.array([5, 6, 7, 8], np.int32))
    lists = lists._replace(weights=np.array([1.5, 0.5, 1.0, 2.0], np.float32))
    part = take(lists, np.array([3, 0, 1]))
    assert part.weights.tolist() == [2.0, 1.5, 0.5]
    assert (part.indptr.tolist(), part.indices.tolist()) == ([0, 1, 2, 4], [8, 5, 6, 7])
    assert [each.dtype for each in part] == [each.dtype for each in lists]
    assert take(lists, np.empty(0, np.int64)).indptr.tolist() == [0]
    assert take(lists, None) is lists


def test_rows_that_are_to_come_last_do_and_the_others_keep_their_order():
    order = epoch_order(100, seed=3, epoch=2)
    changed = epoch_order(100, 3, 2, last=[7, 50, 2])
    assert set(changed[-3:]) == {7, 50, 2}
    assert list(changed[:-3]) == [row for row in order if row not in (7, 50, 2)]


def test_parts_have_one_order_wherever_they_are_and_another_in_each_epoch_and_with_each_seed():
    alone = {part: order_of_parts([part], 1, 2) for part in ((0, 7), (3, 0), (5, 9))}
    both = order_of_parts([(0, 7), (3, 0), (5, 9)], 1, 2)
    assert both.tolist() == [*alone[0, 7], *(alone[5, 9] + 7)]
    assert sorted(both) == list(range(16)) and both.dtype == np.int64
    cases = [(part, seed, epoch) for part in (0, 1) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order_of_parts([(part, 50)], s, e)) for part, s, e in cases}) == 8


@pytest.mark.parametrize("rows", [1, 40, 1003])
def test_windows_of_blocks_have_each_row_once_and_few_blocks(rows):
    """Found: rows that are lost in the last, shorter block, and windows from all over the disk."""
    window = Window(block=10, rows=40, bytes=0)
    order = epoch_order(rows, 5, 2, window=window)
    assert np.array_equal(np.sort(order), np.arange(rows))
    assert np.array_equal(order, epoch_order(rows, 5, 2, window=window))
    for start in range(0, rows, window.rows):
        assert len(np.unique(order[start : start + window.rows] // window.block)) <= 5
    if rows > 1:
        others = [epoch_order(rows, *each, window=window) for each in [(5, 3), (6, 2)]]
        assert not any(np.array_equal(order, other) for other in others)
    last = order[: rows // 2].tolist()
    without = epoch_order(rows, 5, 2, last, window)
    assert without[-len(last) :].tolist() == last if last else np.array_equal(without, order)
