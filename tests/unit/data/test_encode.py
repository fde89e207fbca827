from dataclasses import replace

import numpy as np
import pytest

from hogbatch.data.batch import csr_inputs
from hogbatch.data.encode import (
    Encoding,
    encode,
    explain,
    infer_encoding,
)
from hogbatch.data.log_labels import encoding_of_logs, have_heavy_tail
from hogbatch.data.raw import LabelLists, RawSet, named_labels
from hogbatch.errors import DataError, UsageError


def rows_with(labels=None, lists=None, classes_hint=0):
    """Rows of a file with these labels: numbers, names or lists."""
    names, rows = (), len(labels or lists or [0])
    if lists is not None:
        indptr = np.cumsum([0, *map(len, lists)])
        lists = LabelLists(indptr, np.array([label for row in lists for label in row], np.int32))
    if labels is not None:
        named = isinstance(labels[0], str | bool)
        labels, names = named_labels(np.array(labels)) if named else (np.array(labels), ())
    inputs = csr_inputs(np.zeros(rows + 1, np.int64), np.empty(0, "i4"), np.empty(0, "f4"))
    lines = np.arange(rows) * 10 + 1
    return RawSet(inputs, 1, labels, lists, "a.svm", classes_hint, lines=lines, label_names=names)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([0.5, 2.5], "binary"),
        ([3, 1, 2] * 3, "classes"),
        ([3, 1, 2] * 3 + [7], "real"),  # fewer than three rows a value
        ([*range(10, 30)] * 3, "classes"),
        ([*range(2, 23)] * 100, "real"),  # more than 20, not from 0 or 1 on
        ([*range(100)] * 10, "classes"),
        ([*range(1, 101)] * 10, "classes"),
        ([*range(100)] * 10 + [100] * 9, "real"),
        ([*range(99), 100] * 10, "real"),  # a gap
        ([1.5, 2, 3] * 3, "real"),
    ],
)
def test_auto_goes_by_the_distinct_labels(labels, kind):
    assert infer_encoding(rows_with(labels), "auto").kind == kind


def test_lists_are_multilabel_for_auto_and_softmax():
    for loss in ("auto", "softmax"):
        lists = rows_with(lists=[[1], [0, 4]])
        assert infer_encoding(lists, loss) == Encoding("multilabel", (), 5)
    assert infer_encoding(rows_with(lists=[[1], []], classes_hint=9), "auto").outputs == 9


@pytest.mark.parametrize(
    ("labels", "loss", "encoding", "targets"),
    [
        ([4, -2.5, 4], "hinge", Encoding("binary", (-2.5, 4.0), 1), [1, 0, 1]),
        ([7, -1, 3, 7], "softmax", Encoding("classes", (-1, 3, 7), 3), [2, 0, 1, 2]),
        ([1, -1], "softmax", Encoding("classes", (-1, 1), 2), [1, 0]),
        ([3, 3], "squared", Encoding("real", (), 1, 3.0, 1.0), [0, 0]),  # only shifted
        ([0, 2, 4], "poisson", Encoding("counts", (), 1, 0.0, 2.0), [0, 1, 2]),  # only scaled
        (["yes", "no"], "auto", Encoding("binary", ("no", "yes"), 1), [1, 0]),
        ([True, False], "auto", Encoding("binary", (False, True), 1), [1, 0]),
        (["c", "b", "a"], "auto", Encoding("classes", ("a", "b", "c"), 3), [2, 1, 0]),
    ],
)
def test_labels_become_targets(labels, loss, encoding, targets):
    raw = rows_with(labels)
    found = infer_encoding(raw, loss)
    assert found == encoding and list(map(type, found.classes)) == list(map(type, encoding.classes))
    encoded = encode(raw, encoding).values
    assert encoded.tolist() == targets and encoded.dtype == np.float32
    assert explain(raw, encoding) is None or loss != "auto"


def test_squared_takes_any_number():
    raw = rows_with([1, 1, 2.25])
    encoding = infer_encoding(raw, "squared")
    assert encoding == Encoding("real", (), 1, offset=17 / 12, scale=pytest.approx(0.589, abs=1e-3))
    targets = encode(raw, encoding).values
    assert targets * encoding.scale + encoding.offset == pytest.approx([1, 1, 2.25])


def test_whole_labels_are_lists_of_one_for_multilabel():
    raw = rows_with([2, 0])
    labels = encode(raw, infer_encoding(raw, "multilabel"))
    assert (labels.indptr.tolist(), labels.indices.tolist()) == ([0, 1, 2], [2, 0])
    assert labels.indices.dtype == np.int32 and len(labels.values) == 0


def test_only_names_that_occur_are_classes_in_sorted_order():
    raw = replace(rows_with([0, 3, 2]), label_names=("z", "unused", "y", "x"))
    encoding = infer_encoding(raw, "softmax")
    assert encoding == Encoding("classes", ("x", "y", "z"), 3)
    assert encode(raw, encoding).values.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("raw", "loss", "complaint"),
    [
        (rows_with([1, 2, 3]), "logistic", r": loss logistic needs exactly .* got 3 \(1, 2, 3\)"),
        (rows_with([1, 1.5]), "softmax", ":11: loss softmax needs whole-number labels; got 1.5"),
        (rows_with([1, 1]), "softmax", ": loss softmax needs at least two distinct labels; got 1"),
        (rows_with([1, -1]), "multilabel", ":11: .* need whole-number labels >= 0; got -1"),
        (rows_with(lists=[[1], [2, 3]]), "hinge", ":11: loss hinge needs one label per row"),
        (rows_with(lists=[[1], []]), "squared", ":11: .* one label per row; got a list of 0"),
        (rows_with([1, 1, 1]), "auto", ": every label is 1; expected at least two distinct"),
        (rows_with(["low"] * 3), "auto", ": every label is 'low'; expected at least two"),
        (rows_with([0, -3]), "poisson", ":11: loss poisson needs labels of at least 0; got -3"),
        (rows_with([0, 0]), "poisson", ": loss poisson needs a label above 0; every label is 0"),
        (rows_with(["low", "high"]), "squared", ":1: .* needs numbers as labels; got 'low'"),
        (rows_with(lists=[[], []]), "auto", ": no row has a label"),
        (rows_with(), "auto", " has no labels"),
    ],
)
def test_a_loss_that_does_not_suit_the_labels_is_an_error(raw, loss, complaint):
    with pytest.raises(DataError, match=rf"^a\.svm{complaint}"):
        infer_encoding(raw, loss)


def test_an_unknown_loss_names_the_known_ones():
    with pytest.raises(UsageError, match=r"one of auto, logistic, hinge.*; got 'log'"):
        infer_encoding(rows_with([1, 2]), "log")


BINARY, NAMED = Encoding("binary", (-1, 1), 1), Encoding("binary", ("a", "b"), 1)


class TestLogs:
    """Labels as logarithms, and the numbers that are predicted with them."""

    LABELS = np.array([0.0, 1.0, 9.0, 1e6])

    def test_targets_are_standardised_logarithms_and_are_inverted(self):
        encoding = encoding_of_logs(self.LABELS)
        targets = encoding.targets_of(self.LABELS)
        assert targets.mean() == pytest.approx(0) and targets.std() == pytest.approx(1)
        assert encoding.numbers_of(targets) == pytest.approx(self.LABELS)
        values = encode(rows_with(self.LABELS.tolist()), encoding).values
        np.testing.assert_allclose(values, targets, rtol=1e-6)

    def test_predictions_are_from_0_to_the_largest_label_but_labels_are_not_bounded(self):
        encoding = encoding_of_logs(self.LABELS)
        far = np.array([-1e3, 1e3], np.float32)  # exp(1e3 * scale) overflows
        assert encoding.predictions_of(far) == pytest.approx([0, 1e6], abs=1e-9)
        assert encoding.numbers_of(encoding.targets_of(np.array([5e7]))) == pytest.approx([5e7])

    def test_each_target_has_its_own_bound(self):
        encoding = encoding_of_logs(np.array([[0.0, 5.0], [3.0, 0.0]]))
        encoding.validate()
        far = np.full((1, 2), 1e3)
        assert encoding.predictions_of(far) == pytest.approx(np.array([[3.0, 5.0]]))

    @pytest.mark.parametrize(
        ("labels", "heavy"),
        [
            (np.exp(np.random.default_rng(0).normal(0, 1.5, 1000)), True),
            (np.random.default_rng(0).exponential(1, 1000), False),  # its skewness is 2
            (np.r_[np.zeros(990), np.full(10, 7.0)], False),  # so are its logarithms
            (np.ones(10), False),
        ],
    )
    def test_a_heavy_tail_is_known_by_its_skewness(self, labels, heavy):
        assert have_heavy_tail(labels) == heavy

    def test_digests_of_earlier_versions_stay_valid(self):
        assert "largest" not in repr(Encoding("real", (), 1))


LISTS, REAL = Encoding("multilabel", (), 3), Encoding("real", (), 1)
COUNTS = Encoding("counts", (), 1)


@pytest.mark.parametrize(
    ("encoding", "raw", "complaint"),
    [
        (BINARY, rows_with([1, 0]), r":11: label 0 does not occur .*\(-1, 1\)"),
        (NAMED, rows_with(["a", "c"]), ":11: label 'c' does not occur"),
        (NAMED, rows_with([4]), r":1: label 4 does not .* \('a', 'b'\)"),
        (LISTS, rows_with(lists=[[0, 2], [1, 3]]), ":11: label 3 .* 0 to 2"),
        (LISTS, rows_with(["a"]), ":1: multi-label losses need numbers"),
        (BINARY, rows_with(lists=[[0], [1, 2]]), ":11: the training data has one label"),
        (COUNTS, rows_with([1, -1]), ":11: the training data has labels of at least 0; got -1"),
        (REAL, rows_with(["a"]), ":1: the training data has numbers as lab"),
        (REAL, rows_with(), " has no labels"),
    ],
)
def test_a_label_that_training_never_saw_is_named(encoding, raw, complaint):
    with pytest.raises(DataError, match=rf"^a\.svm{complaint}"):
        encode(raw, encoding)


@pytest.mark.parametrize(
    ("classes", "labels", "places"),
    [
        (("a", "b", "c"), ["c", "b"], [2, 1]),
        (("1", "2.5"), [2.5, 1], [1, 0]),
        ((1.0, 2.0), [2, 1], [1, 0]),
        ((1, 2), [2.0, 1.0], [1, 0]),
        ((5, 2**53, 2**53 + 1), [str(2**53 + 1), "5"], [2, 0]),
        (("2000000000000000", str(2**53)), [2.0e15], [0]),
        ((1.0, 2.5), ["2.5", "1"], [1, 0]),
        ((False, True), ["True", "False"], [1, 0]),
    ],
)
def test_labels_of_other_files_are_matched_by_what_they_say(classes, labels, places):
    encoding = Encoding("classes", classes, len(classes))
    assert encode(rows_with(labels), encoding).values.tolist() == places


def test_each_of_several_targets_has_a_mean_and_a_deviation_of_its_own():
    numbers = np.array([[1.0, 50.0], [3.0, 50.0]])
    raw = replace(rows_with([0, 0]), labels=numbers)
    for loss in ("auto", "huber"):
        assert infer_encoding(raw, loss) == Encoding("real", (), 2, (2.0, 50.0), (1.0, 1.0))
    encoding = infer_encoding(raw, "auto")
    targets = encode(raw, encoding).values
    assert targets.tolist() == [-1, 0, 1, 0]
    assert encoding.numbers_of(targets.reshape(2, 2)).tolist() == numbers.tolist()
    assert encode(raw, infer_encoding(raw, "poisson")).values.tolist() == [0.5, 1, 1.5, 1]
    assert explain(replace(raw, labels=numbers), encoding) is None


def test_several_targets_that_do_not_fit_are_named():
    raw = replace(rows_with([0, 0]), labels=np.array([[1.0, 2.0], [3.0, -1.0]]))
    for loss, message in (
        ("softmax", "a.svm: loss softmax needs one label per row; got 2"),
        ("multilabel", "a.svm: multi-label losses need one label per row; got 2"),
        ("poisson", "a.svm:11: loss poisson needs labels of at least 0; got -1"),
    ):
        with pytest.raises(DataError, match=message):
            infer_encoding(raw, loss)
    with pytest.raises(DataError, match=r"expected 1 numbers per row as labels, .*; got 2"):
        encode(raw, Encoding("real", (), 1))
