from dataclasses import replace

import numpy as np
import pytest

from hogbatch.data.table import encoders
from hogbatch.data.table.columns import CategoryColumn, DateColumn, NumberColumn, TextColumn
from hogbatch.data.table.encoders import CategoryEncoder, DateEncoder, TextEncoder
from hogbatch.data.table.means import shrunk_means
from hogbatch.data.table.numeric import PIECES, NumericEncoder
from hogbatch.data.table.words import terms
from tests.support.pairs import pairs

NAN = float("nan")
DAY = 86_400.0


def numbers(*cells):
    return NumberColumn(np.array(cells, np.float64))


def categories(*cells):
    return CategoryColumn.of_cells(cells)


def fitted(kind, column, scaling="standard"):
    return kind.fit(column, np.arange(len(column)), scaling)


def matrix(encoder, column):
    """All rows as a dense matrix, which is the same after a round trip through the model file."""
    stored = type(encoder).from_description(encoder.description(), encoder.arrays(), "x")
    rows = np.arange(len(column))
    found = []
    for each in (encoder, stored):
        block = each.encode(column, rows)
        assert block.features.dtype == np.int32
        dense = np.zeros((len(rows), each.width), np.float32)
        np.put_along_axis(dense, block.features.astype(np.int64), block.values, axis=1)
        found.append(dense)
    np.testing.assert_array_equal(*found)
    return found[0]


@pytest.mark.parametrize(
    ("training", "scaling", "later", "expected"),
    [
        ((1, 3), "standard", (100, NAN), [[98], [0]]),  # missing only later: the mean
        ((1, NAN, 3), "standard", (1, NAN, 3), [[-1, 0], [0, 1], [1, 0]]),  # with an indicator
        ((-2, 4), "none", (-2, 4, NAN), [[-2], [4], [1]]),
        ((-2, 4), "max", (-2, 4, NAN), [[-0.5], [1], [0.25]]),
        ((1e9, 1e9 + 2), "standard", (1e9, 1e9 + 2), [[-1], [1]]),  # differences are kept
        ((0, 5, 0, 0, 0, 0), "robust", (5, 0, NAN), [[1], [-1], [0]]),  # two numbers
        (range(5), "robust", (2, NAN), [[0], [0]]),  # missing only later: the median
    ],
)
def test_numbers_are_scaled_with_the_training_rows(training, scaling, later, expected):
    encoder = fitted(NumericEncoder, numbers(*training), scaling)
    assert matrix(encoder, numbers(*later)).tolist() == expected


def test_quantiles_bound_extreme_numbers():
    found = matrix(
        fitted(NumericEncoder, numbers(*range(101)), "quantile"), numbers(*range(101), 1e9)
    )
    found = found[:, 0]
    assert found[50] == 0
    assert found[101] == found[100] == pytest.approx(3**0.5)
    assert found[:101].std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("training", "scale"),
    [(range(5), 2), ((0, 0, 0, 0, 0, 0, 0, 0, 7, 8), 4)],
    ids=["quartiles", "range"],
)
def test_the_bounded_scale_is_the_distance_of_the_quartiles_or_half_the_range(training, scale):
    later = np.array([*training, -1e300, 1e300])
    z = (later - np.median(training)) / scale
    with np.errstate(over="ignore"):
        expected = np.where(np.abs(z) < 1e9, z / np.sqrt(1 + (z / 3) ** 2), 3 * np.sign(z))
    encoder = fitted(NumericEncoder, numbers(*training), "robust")
    np.testing.assert_allclose(matrix(encoder, numbers(*later))[:, 0], expected, rtol=1e-6)


def test_pieces_are_the_fractions_of_intervals_below_a_number():
    training = numbers(*range(PIECES * 3 + 1), NAN)
    encoder = fitted(NumericEncoder, training, "ple")
    found = matrix(encoder, numbers(7, -9, 1e9, NAN))
    standard = matrix(fitted(NumericEncoder, training, "standard"), numbers(7, -9, 1e9, NAN))
    np.testing.assert_array_equal(found[:, [0, -1]], standard)
    assert found[0, 1:-1].tolist() == pytest.approx([1, 1, 1 / 3, *[0] * (PIECES - 3)])
    assert not found[1, 1:-1].any() and (found[2, 1:-1] == 1).all()
    assert fitted(NumericEncoder, numbers(0, 1, 1), "ple").width == 1, "two numbers need no more"


def test_whole_numbers_that_are_repeated_often_have_features_of_their_values():
    training = numbers(*600 * [2, NAN, 5], *20 * [-1], *19 * [7])
    plain, rows = fitted(NumericEncoder, training), np.arange(len(training))
    encoder, later = plain.with_values(training, rows), numbers(5, -1, 3, 7, NAN, 2)
    assert encoder.values.tolist() == [-1, 2, 5]  # 7 is rare
    found = matrix(encoder, later)
    assert found[:, :1].tolist() == matrix(plain, later)[:, :1].tolist()
    expected = [[0, 0, 1, 0], [1, 0, 0, 0], *2 * [[0, 0, 0, 0]], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert found[:, 1:].tolist() == expected  # the last one is the indicator
    others = [0, 1], [0, 1, 2.5], [*range(65)]
    for cells in (numbers(*1_000 * each) for each in others):
        assert (
            fitted(NumericEncoder, cells).with_values(cells, np.arange(len(cells))).values is None
        )
    few = numbers(*333 * [1, 2, 3])
    assert fitted(NumericEncoder, few).with_values(few, np.arange(999)).values is None


def test_encoders_of_earlier_versions_are_read():
    stored = {"mean": 1.0, "scale": 2.0, "fill": 1.0, "indicator": False}
    encoder = NumericEncoder.from_description(stored, {}, "x")
    assert matrix(encoder, numbers(5, NAN)).tolist() == [[2], [0]]


@pairs(
    scaling=["standard", "robust", "ple", "max", "none", "quantile"],
    cells=[(0, 0), (7, 7), (NAN, NAN)],
)
def test_constant_and_empty_columns_are_finite(scaling, cells):
    encoder = fitted(NumericEncoder, numbers(*cells), scaling)
    assert np.isfinite(matrix(encoder, numbers(*cells, 5.0))).all()


OFTEN = ("often",) * 995 + ("twice",) * 2 + ("pair",) * 2 + ("once",)


@pytest.mark.parametrize(
    ("training", "later", "places"),
    [
        (("b", "a", "b", None), ("b", "a", "c", None), [1, 0, 2, 3]),  # one-hot; unknown
        (("a", "b"), (None,), [2]),  # missing only later: unknown
        (("1", "2"), ("2.0", "1.0", "01", "1.5", "1.0.0"), [1, 0, 2, 2, 2]),
        (("1", "1.0", "2.0"), ("1.0", "1", "2", "-2.0"), [1, 0, 2, 3]),
        (OFTEN, ("once", "twice", "pair", "often", "new"), [2, 1, 1, 0, 2]),  # rare ones share one
    ],
)
def test_categories_are_one_hot(training, later, places):
    encoder = fitted(CategoryEncoder, categories(*training))
    column = categories(*later)
    found = encoder.encode(column, np.arange(len(column)))
    assert found.features[:, 0].tolist() == places


def test_rare_categories_weigh_less_and_numbers_may_be_categories():
    column = categories(*("1",) * 9984, *("2",) * 16)
    encoder = fitted(CategoryEncoder, column)
    found = matrix(encoder, column)
    assert found[0, 0] == 1 and found[-1, 1] == pytest.approx((16 / 1000) ** 0.25)
    assert matrix(encoder, numbers(2, 1)).argmax(axis=1).tolist() == [1, 0]
    assert not matrix(encoder, numbers(3)).any(), "no training row has the feature of other values"


def test_many_categories_are_hashed(monkeypatch):
    monkeypatch.setattr(encoders, "MAX_VALUES", 3)
    column = categories(*"abcd", None)
    encoder = fitted(CategoryEncoder, column)
    assert encoder.width == (1 << encoders.HASH_BITS) + 1
    found = matrix(encoder, column)
    assert (np.count_nonzero(found, axis=1) == 1).all() and found[4, -1] > 0
    again = matrix(encoder, categories("z", "d", "a"))
    np.testing.assert_array_equal(again[1:], found[[3, 0]])


@pytest.mark.parametrize("hashed", [False, True])
def test_each_value_has_mean_labels_of_its_own(monkeypatch, hashed):
    """Rare values, which share a feature, have means of their own."""
    monkeypatch.setattr(encoders, "MEANS_VALUES", 2)
    monkeypatch.setattr(encoders, "MAX_VALUES", 3 if hashed else 10)
    column = categories(*"aaaaaabbbbbbccdd", "once", None, None)
    targets = np.array([[ord(str(c)[0]) - 98.0] for c in (*"aaaaaabbbbbbccdd", "b", "d", "d")])
    rows = np.arange(len(column))
    plain = CategoryEncoder.fit(column, np.tile(rows, 100) if hashed else rows, "standard")
    assert plain.has_many
    means = shrunk_means(plain.places_of(column, rows), targets, plain.places)
    encoder = replace(plain, means=means.reshape(-1))
    assert encoder.width == plain.width + 1 and encoder.stored == 2
    found = encoder.encode(categories(*"abcd", "new", None), np.arange(6))
    np.testing.assert_allclose(found.values[:, 1], [-1, 0, 1, 2, 0, 2], atol=0.1)
    assert (found.features[:, 1] == plain.width).all()
    np.testing.assert_array_equal(
        found.features[:, :1], plain.encode(categories(*"abcd", "new", None), np.arange(6)).features
    )
    again = CategoryEncoder.from_description(encoder.description(), encoder.arrays(), "c")
    np.testing.assert_array_equal(again.means, encoder.means)
    with pytest.raises(ValueError, match=r"c\.means: expected numbers for \d+ places"):
        replace(encoder, means=encoder.means[1:]).validate("c")


def test_dates_are_numbers_and_cycles():
    column = DateColumn(np.arange(0, 730 * DAY, 6 * 3600))
    encoder = fitted(DateEncoder, column)
    assert encoder.cycles == ("day", "week", "year")
    found = matrix(encoder, column)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=0.01)
    np.testing.assert_allclose(found.std(axis=0), 1, atol=0.01)
    np.testing.assert_allclose(found[0, 1:3], found[4, 1:3], atol=1e-5)  # the same time of day


def test_cycles_that_do_not_occur_are_left_out_and_missing_dates_have_an_indicator_alone():
    assert fitted(DateEncoder, DateColumn(np.arange(0, 30 * DAY, DAY))).cycles == ("week",)
    assert fitted(DateEncoder, DateColumn(np.arange(0, DAY, 3600))).cycles == ("day",)
    column = DateColumn(np.array([0.0, 90_000.0, NAN]))
    encoder = fitted(DateEncoder, column)
    assert matrix(encoder, column)[2].tolist() == [0, 1, *[0] * (encoder.width - 2)]


def test_texts_are_tf_idf_of_words_and_pairs():
    column = TextColumn.of(["red cat", "red dog", "red red cat", "fish"])
    encoder = TextEncoder.fit(column, np.arange(3), "standard")
    assert encoder.width == 6  # red, cat, dog, red cat, red dog, red red
    stored = TextEncoder.from_description(encoder.description(), encoder.arrays(), "x")
    ((count, found),) = terms(column, np.arange(4))
    rows, _, values = stored.weigh(found, count)
    norms = np.bincount(rows, values.astype(np.float64) ** 2, 4)
    np.testing.assert_allclose(norms, [1, 1, 1, 0], rtol=1e-6)  # fish is unknown
    first = values[rows == 0]
    assert first.min() < first.max()  # red is in every row
