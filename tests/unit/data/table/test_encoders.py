import numpy as np
import pytest

from hogbatch.data.table import encoders
from hogbatch.data.table.columns import CategoryColumn, DateColumn, NumberColumn, TextColumn
from hogbatch.data.table.encoders import (
    CategoryEncoder,
    DateEncoder,
    NumericEncoder,
    TextEncoder,
)
from hogbatch.data.table.words import terms

NAN = float("nan")


def numbers(*cells):
    return NumberColumn(np.array(cells, np.float64))


def matrix(encoder, column):
    """All rows as a dense matrix, and the encoder after a round trip through the model file."""
    stored = type(encoder).from_description(encoder.description(), encoder.arrays())
    rows = np.arange(len(column))
    found = []
    for each in (encoder, stored):
        block = each.prepare(column)(rows)
        assert block.features.dtype == np.int32
        dense = np.zeros((len(rows), each.width), np.float32)
        np.put_along_axis(dense, block.features.astype(np.int64), block.values, axis=1)
        found.append(dense)
    np.testing.assert_array_equal(*found)
    return found[0]


def test_numbers_are_standardised_with_the_training_rows():
    column = numbers(1, 3, 100)
    encoder = NumericEncoder.fit(column, np.array([0, 1]), "standard")
    assert matrix(encoder, column)[:, 0].tolist() == [-1, 1, 98]


def test_a_missing_number_is_the_mean_and_has_an_indicator():
    column = numbers(1, NAN, 3)
    encoder = NumericEncoder.fit(column, np.arange(3), "standard")
    assert matrix(encoder, column).tolist() == [[-1, 0], [0, 1], [1, 0]]


def test_a_number_that_is_missing_only_later_is_the_mean():
    encoder = NumericEncoder.fit(numbers(1, 3), np.arange(2), "standard")
    assert matrix(encoder, numbers(NAN, 3)).tolist() == [[0], [1]]


@pytest.mark.parametrize(("scaling", "expected"), [("none", [-2, 4, 1]), ("max", [-0.5, 1, 0.25])])
def test_other_scales(scaling, expected):
    encoder = NumericEncoder.fit(numbers(-2, 4), np.arange(2), scaling)
    assert matrix(encoder, numbers(-2, 4, NAN))[:, 0].tolist() == expected


def test_quantiles_bound_extreme_numbers():
    column = numbers(*range(101), 1e9)
    encoder = NumericEncoder.fit(column, np.arange(101), "quantile")
    found = matrix(encoder, column)[:, 0]
    assert found[50] == 0
    assert found[101] == found[100] == pytest.approx(3**0.5)
    assert found[:101].std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("scaling", ["standard", "max", "none", "quantile"])
@pytest.mark.parametrize("cells", [(0.0, 0.0), (7.0, 7.0), (NAN, NAN)])
def test_constant_and_empty_columns_are_finite(scaling, cells):
    encoder = NumericEncoder.fit(numbers(*cells), np.arange(2), scaling)
    assert np.isfinite(matrix(encoder, numbers(*cells, 5.0))).all()


def test_large_numbers_keep_their_differences():
    encoder = NumericEncoder.fit(numbers(1e9, 1e9 + 2), np.arange(2), "standard")
    assert matrix(encoder, numbers(1e9, 1e9 + 2))[:, 0].tolist() == [-1, 1]


def test_categories_are_one_hot():
    column = CategoryColumn.of_cells(["b", "a", "b", None])
    encoder = CategoryEncoder.fit(column, np.arange(4), "standard")
    assert matrix(encoder, column).argmax(axis=1).tolist() == [1, 0, 1, 3]
    later = CategoryColumn.of_cells(["c", "a"])
    assert matrix(encoder, later).argmax(axis=1).tolist() == [2, 0]


def test_rare_categories_share_a_feature_and_single_ones_are_like_unknown_ones():
    column = CategoryColumn.of_cells(["often"] * 995 + ["twice"] * 2 + ["pair"] * 2 + ["once"])
    encoder = CategoryEncoder.fit(column, np.arange(1000), "standard")
    later = CategoryColumn.of_cells(["once", "twice", "pair", "often", "new"])
    assert matrix(encoder, later).argmax(axis=1).tolist() == [2, 1, 1, 0, 2]


def test_rare_categories_weigh_less():
    column = CategoryColumn.of_cells(["a"] * 9984 + ["b"] * 16)
    found = matrix(CategoryEncoder.fit(column, np.arange(10_000), "standard"), column)
    assert found[0, 0] == 1
    assert found[-1, 1] == pytest.approx((16 / 1000) ** 0.25)


def test_a_missing_category_without_a_feature_is_unknown():
    encoder = CategoryEncoder.fit(CategoryColumn.of_cells(["a", "b"]), np.arange(2), "standard")
    assert matrix(encoder, CategoryColumn.of_cells([None])).argmax(axis=1).tolist() == [2]


def test_many_categories_are_hashed(monkeypatch):
    monkeypatch.setattr(encoders, "MAX_VALUES", 3)
    column = CategoryColumn.of_cells([*"abcd", None])
    encoder = CategoryEncoder.fit(column, np.arange(5), "standard")
    assert encoder.width == (1 << encoders.HASH_BITS) + 1
    found = matrix(encoder, column)
    assert (np.count_nonzero(found, axis=1) == 1).all()
    assert found[4, -1] > 0
    again = matrix(encoder, CategoryColumn.of_cells(["z", "d", "a"]))
    np.testing.assert_array_equal(again[1:], found[[3, 0]])


def test_numbers_as_categories():
    encoder = CategoryEncoder.fit(CategoryColumn.of_cells(["1", "2"]), np.arange(2), "standard")
    assert matrix(encoder, numbers(2, 1, 3)).argmax(axis=1).tolist() == [1, 0, 2]


def test_dates_are_numbers_and_cycles():
    day = 86_400.0
    column = DateColumn(np.arange(0, 730 * day, 6 * 3600))
    encoder = DateEncoder.fit(column, np.arange(len(column)), "standard")
    assert encoder.cycles == ("day", "week", "year")
    found = matrix(encoder, column)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=0.01)
    np.testing.assert_allclose(found.std(axis=0), 1, atol=0.01)
    np.testing.assert_allclose(found[0, 1:3], found[4, 1:3], atol=1e-5)  # the same time of day


def test_cycles_that_do_not_occur_are_left_out():
    day = 86_400.0
    midnights = DateColumn(np.arange(0, 30 * day, day))
    assert DateEncoder.fit(midnights, np.arange(30), "standard").cycles == ("week",)
    times = DateColumn(np.arange(0, day, 3600))
    assert DateEncoder.fit(times, np.arange(24), "standard").cycles == ("day",)


def test_a_missing_date_has_an_indicator_and_nothing_else():
    column = DateColumn(np.array([0.0, 90_000.0, NAN]))
    encoder = DateEncoder.fit(column, np.arange(3), "standard")
    assert matrix(encoder, column)[2].tolist() == [0, 1, *[0] * (encoder.width - 2)]


def test_texts_are_tf_idf_of_words_and_pairs():
    column = TextColumn.of(["red cat", "red dog", "red red cat", "fish"])
    encoder = TextEncoder.fit(column, np.arange(3), "standard")
    assert encoder.width == 6  # red, cat, dog, red cat, red dog, red red
    stored = TextEncoder.from_description(encoder.description(), encoder.arrays())
    ((count, found),) = terms(column, np.arange(4))
    rows, block = stored.weigh(found, count)
    norms = np.bincount(rows, block.values[:, 0].astype(np.float64) ** 2, 4)
    np.testing.assert_allclose(norms, [1, 1, 1, 0], rtol=1e-6)  # fish is unknown
    first = block.values[rows == 0, 0]
    assert first.min() < first.max()  # red is in every row
