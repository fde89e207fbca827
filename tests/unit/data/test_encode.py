from dataclasses import replace

import numpy as np
import pytest

from hogbatch.data.batch import csr_inputs
from hogbatch.data.encode import Encoding, encode, explain, infer_encoding
from hogbatch.data.raw import LabelLists, RawSet, named_labels
from hogbatch.errors import DataError, UsageError


def a_set(labels=None, lists=None, classes_hint=0):
    rows = len(labels if lists is None else lists) if labels or lists else 1
    inputs = csr_inputs(
        np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    )
    if lists is not None:
        indptr = np.cumsum([0, *map(len, lists)])
        lists = LabelLists(indptr, np.array([label for row in lists for label in row], np.int32))
    labels = None if labels is None else np.array(labels, np.float64)
    lines = np.arange(rows) * 10 + 1
    return RawSet(inputs, 1, labels, lists, "a.svm", classes_hint, lines=lines)


def a_named_set(labels):
    numbers, names = named_labels(np.array(labels))
    return replace(a_set(numbers.tolist()), label_names=names)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([1, -1, 1], "binary"),
        ([0.5, 2.5], "binary"),
        ([3, 1, 2] * 3, "classes"),
        ([3, 1, 2] * 3 + [7], "real"),  # fewer than three rows a value
        ([*range(10, 30)] * 3, "classes"),
        ([*range(2, 23)] * 100, "real"),  # more than 20, not from 0 or 1 on
        ([*range(17, 91)] * 400, "real"),  # ages
        ([*range(1922, 2012)] * 100, "real"),  # years
        ([*range(100)] * 10, "classes"),
        ([*range(1, 101)] * 10, "classes"),
        ([*range(100)] * 10 + [100] * 9, "real"),
        ([*range(99), 100] * 10, "real"),  # a gap
        (np.random.default_rng(0).geometric(0.03, 5000).tolist(), "real"),  # counts
        ([1.5, 2, 3] * 3, "real"),
    ],
)
def test_auto_goes_by_the_distinct_labels(labels, kind):
    assert infer_encoding(a_set(labels), "auto").kind == kind


def test_auto_takes_lists_as_multilabel():
    assert infer_encoding(a_set(lists=[[1], [0, 4]]), "auto") == Encoding("multilabel", (), 5)
    assert infer_encoding(a_set(lists=[[1], []], classes_hint=9), "auto").outputs == 9


def test_softmax_takes_lists_as_it_takes_classes():
    assert infer_encoding(a_set(lists=[[1], [0, 4]]), "softmax") == Encoding("multilabel", (), 5)
    assert infer_encoding(a_set([3, 1, 2]), "softmax").kind == "classes"


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_of_two_labels_the_larger_becomes_one(loss):
    raw = a_set([4, -2.5, 4])
    encoding = infer_encoding(raw, loss)
    assert encoding == Encoding("binary", (-2.5, 4.0), 1)
    labels = encode(raw, encoding)
    assert labels.values.tolist() == [1, 0, 1]
    assert labels.values.dtype == np.float32


def test_classes_are_numbered_in_order():
    raw = a_set([7, -1, 3, 7])
    encoding = infer_encoding(raw, "softmax")
    assert encoding == Encoding("classes", (-1.0, 3.0, 7.0), 3)
    assert encode(raw, encoding).values.tolist() == [2, 0, 1, 2]


def test_softmax_may_have_two_classes():
    assert infer_encoding(a_set([1, -1]), "softmax").outputs == 2


def test_squared_takes_any_number():
    raw = a_set([1, 1, 2.25])
    encoding = infer_encoding(raw, "squared")
    assert encoding == Encoding("real", (), 1, offset=17 / 12, scale=pytest.approx(0.589, abs=1e-3))
    targets = encode(raw, encoding).values
    assert targets.mean() == pytest.approx(0, abs=1e-6)
    assert targets * encoding.scale + encoding.offset == pytest.approx([1, 1, 2.25])


def test_real_labels_that_are_all_the_same_are_only_shifted():
    encoding = infer_encoding(a_set([3, 3]), "squared")
    assert (encoding.offset, encoding.scale) == (3, 1)


def test_whole_labels_are_lists_of_one_for_multilabel():
    raw = a_set([2, 0])
    labels = encode(raw, infer_encoding(raw, "multilabel"))
    assert labels.indptr.tolist() == [0, 1, 2]
    assert labels.indices.tolist() == [2, 0]
    assert labels.indices.dtype == np.int32
    assert len(labels.values) == 0


@pytest.mark.parametrize(
    ("raw", "loss", "complaint"),
    [
        (a_set([1, 2, 3]), "logistic", "a.svm: loss logistic needs exactly two .* got 3 (1, 2, 3)"),
        (a_set([1, 1]), "hinge", "a.svm: loss hinge needs exactly two distinct labels; got 1 (1)"),
        (a_set([1, 1.5]), "softmax", "a.svm:11: loss softmax needs whole-number labels; got 1.5"),
        (a_set([1, 1]), "softmax", "a.svm: loss softmax needs at least two distinct labels; got 1"),
        (
            a_set([1, -1]),
            "multilabel",
            "a.svm:11: multi-label losses need whole-number labels >= 0; got -1",
        ),
        (a_set(lists=[[1], [2, 3]]), "hinge", "a.svm:11: loss hinge needs one label per row"),
        (a_set(lists=[[1], []]), "squared", "a.svm:11: .* one label per row; got a list of 0"),
        (a_set([1, 1, 1]), "auto", "a.svm: every label is 1; expected at least two distinct"),
        (a_set(lists=[[], []]), "auto", "a.svm: no row has a label"),
        (a_set(), "auto", "a.svm has no labels"),
    ],
)
def test_a_loss_that_does_not_suit_the_labels_is_an_error(raw, loss, complaint):
    pattern = complaint.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(DataError, match=f"^{pattern}"):
        infer_encoding(raw, loss)


def test_an_unknown_loss_names_the_known_ones():
    with pytest.raises(UsageError, match=r"one of auto, logistic, hinge.*; got 'log'"):
        infer_encoding(a_set([1, 2]), "log")


@pytest.mark.parametrize(
    ("encoding", "raw", "complaint"),
    [
        (Encoding("binary", (-1, 1), 1), a_set([1, 0]), r":11: label 0 does not occur .*\(-1, 1\)"),
        (Encoding("classes", (1, 2, 3), 3), a_set([3, 2, 9]), r":21: label 9 does not occur"),
        (Encoding("multilabel", (), 3), a_set(lists=[[0, 2], [1, 3]]), r":11: label 3 .* 0 to 2"),
        (Encoding("multilabel", (), 3), a_set([2, 3]), r":11: label 3 does not occur"),
        (
            Encoding("binary", (-1, 1), 1),
            a_set(lists=[[0], [1, 2]]),
            ":11: the training data has one",
        ),
        (Encoding("real", (), 1), a_set(), " has no labels"),
    ],
)
def test_a_label_that_training_never_saw_is_named(encoding, raw, complaint):
    with pytest.raises(DataError, match=rf"^a\.svm{complaint}"):
        encode(raw, encoding)


@pytest.mark.parametrize(
    ("labels", "expected", "places"),
    [
        (["yes", "no", "yes"], Encoding("binary", ("no", "yes"), 1), [1, 0, 1]),
        ([True, False], Encoding("binary", (False, True), 1), [1, 0]),
        (["c", "b", "a"], Encoding("classes", ("a", "b", "c"), 3), [2, 1, 0]),
    ],
)
def test_text_and_booleans_are_classes(labels, expected, places):
    raw = a_named_set(labels)
    encoding = infer_encoding(raw, "auto")
    assert encoding == expected and type(encoding.classes[0]) is type(expected.classes[0])
    assert encode(raw, encoding).values.tolist() == places
    assert explain(raw, encoding) is None


def test_only_names_that_occur_are_classes_in_sorted_order():
    raw = replace(a_set([0, 3, 2]), label_names=("z", "unused", "y", "x"))
    encoding = infer_encoding(raw, "softmax")
    assert encoding == Encoding("classes", ("x", "y", "z"), 3)
    assert encode(raw, encoding).values.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("classes", "raw", "places"),
    [
        (("a", "b", "c"), a_named_set(["c", "b"]), [2, 1]),
        (("1", "2.5"), a_set([2.5, 1]), [1, 0]),
        ((1.0, 2.5), a_named_set(["2.5", "1"]), [1, 0]),
        ((False, True), a_named_set(["True", "False"]), [1, 0]),
    ],
)
def test_labels_of_other_files_are_matched_by_what_they_say(classes, raw, places):
    assert encode(raw, Encoding("classes", classes, len(classes))).values.tolist() == places


@pytest.mark.parametrize(
    ("encoding", "raw", "complaint"),
    [
        (Encoding("binary", ("a", "b"), 1), a_named_set(["a", "c"]), r":11: label 'c' does not"),
        (Encoding("binary", ("a", "b"), 1), a_set([4]), r":1: label 4 does not .* \('a', 'b'\)"),
        (Encoding("real", (), 1), a_named_set(["a"]), ":1: the training data has numbers as lab"),
        (Encoding("multilabel", (), 2), a_named_set(["a"]), ":1: multi-label losses need numbers"),
    ],
)
def test_text_that_cannot_be_a_label_is_named(encoding, raw, complaint):
    with pytest.raises(DataError, match=rf"^a\.svm{complaint}"):
        encode(raw, encoding)


def test_text_does_not_suit_losses_of_numbers():
    raw = a_named_set(["low", "high"])
    with pytest.raises(DataError, match="loss squared needs numbers as labels; got 'low'"):
        infer_encoding(raw, "squared")
    with pytest.raises(DataError, match="every label is 'low'; expected at least two"):
        infer_encoding(a_named_set(["low"] * 3), "auto")
