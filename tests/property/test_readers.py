"""A file is read alike at once and line by line, and as scikit-learn reads it."""

import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings, strategies as st
from numpy.testing import assert_array_equal
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from hogbatch.data import csv, sparse
from hogbatch.data.csr import to_dense
from hogbatch.data.csv import Table
from hogbatch.data.readers import read
from hogbatch.data.samples import SAMPLES
from hogbatch.data.text import Block
from hogbatch.errors import DataError

SOURCE = Path("some.file")

plain = st.one_of(
    st.integers(-99, 99).map(str),
    st.floats(allow_nan=False, width=32, allow_infinity=False).map(repr),
    st.sampled_from(["+1", "-0", "1.", ".5", "1e3", "2E-4", "1e-400", "007"]),
)
odd = st.sampled_from(
    [
        "",
        "nan",
        "inf",
        "1e400",
        "3.5e38",
        "x",
        "1-2",
        "1.5.5",
        "+",
        "e",
        "1e",
        ".",
        "1_0",
        "٣",
        "\0",
    ]
)
blanks = st.sampled_from([" ", " ", " ", "\t", "  ", "\r", ", ", "\x0b"])
index = st.one_of(st.integers(0, 30).map(str), st.sampled_from(["-1", "1.5", "1e1", "2147483647"]))
pair = st.builds("{}:{}".format, index, plain)
labels = st.one_of(plain, st.lists(st.integers(0, 9).map(str), max_size=3).map(",".join))
usual_line = st.builds("{} {}".format, labels, st.lists(pair, max_size=4).map(" ".join))
odd_line = st.lists(st.one_of(pair, plain, odd, st.sampled_from([":", ","]), blanks), max_size=6)
sparse_lines = st.lists(st.one_of(usual_line, usual_line, odd_line.map("".join)), max_size=6)


def assert_same_arrays(one, other):
    for left, right in zip(one, other, strict=True):
        assert_array_equal(left, right, strict=True)


@settings(deadline=None, max_examples=500)
@given(sparse_lines)
@example(["1 1:1-2 3:"])
@example(["1.5.5 e"])
@example([" ", ""])
@example(["1,2", ",3 1:1"])
@example(["1 1:2:3 4"])
def test_sparse_text_is_read_alike_at_once_and_line_by_line(lines):
    block = Block(7, "".join(line + "\n" for line in lines).encode())
    at_once = sparse.parse_plain(block)
    if at_once is not None:
        assert_same_arrays(at_once, sparse.parse_lines(block, SOURCE))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), max_size=3),
            st.dictionaries(st.integers(0, 2**31 - 2), st.floats(-9, 9), max_size=3),
        ),
        min_size=1,
        max_size=6,
    ).filter(lambda rows: any(some or pairs for some, pairs in rows))
)
def test_usual_sparse_text_takes_the_fast_way(rows):
    lines = (
        ",".join(map(str, some)) + "".join(f" {i}:{value!r}" for i, value in pairs.items())
        for some, pairs in rows
    )
    parsed = sparse.parse_plain(Block(1, "".join(line + "\n" for line in lines).encode()))
    assert np.diff(parsed.label_indptr).tolist() == [len(some) for some, _ in rows]
    assert parsed.labels.tolist() == [label for some, _ in rows for label in some]
    assert np.diff(parsed.indptr).tolist() == [len(pairs) for _, pairs in rows]
    assert parsed.indices.tolist() == [i for _, pairs in rows for i in pairs]
    values = np.array([value for _, pairs in rows for value in pairs.values()], np.float32)
    assert_array_equal(parsed.values, values, strict=True)


cell = st.one_of(plain, plain, plain, odd)
rows_of_cells = st.lists(st.lists(cell, min_size=2, max_size=3), max_size=5)


@settings(deadline=None, max_examples=500)
@given(rows_of_cells, st.sampled_from([",", "\t"]), st.sampled_from(["\n", "\n", "\n\n", "\r"]))
@example([["1-2", ""]], ",", "\n")
@example([["1.5.5", "e"]], ",", "\n")
def test_csv_is_read_alike_at_once_and_line_by_line(rows, delimiter, end):
    text = "".join(delimiter.join(row) + end for row in rows)
    block = Block(7, (text if text.endswith("\n") else text + "\n").encode())
    table = Table(SOURCE, delimiter, 2, (), 1)
    at_once = csv.parse_plain(block, table)
    if at_once is not None:
        lines, numbers = csv.parse_lines(block, table)
        assert_array_equal(at_once, numbers, strict=True)
        assert_array_equal(lines, 7 + np.arange(len(numbers)))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_usual_csv_takes_the_fast_way(rows):
    block = Block(1, "".join(",".join(map(repr, row)) + "\n" for row in rows).encode())
    at_once = csv.parse_plain(block, Table(SOURCE, ",", 3, (), 1))
    assert_array_equal(at_once, np.array(rows), strict=True)


@st.composite
def labelled_matrices(draw):
    """A matrix, and one label or (for True) one to four labels a row."""
    rows, features = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    value = st.one_of(st.just(0.0), st.floats(-1e6, 1e6, width=32))
    matrix = [[draw(value) for _ in range(features)] for _ in range(rows)]
    multilabel = draw(st.booleans())
    y = draw(st.lists(st.integers(-3, 3), min_size=rows, max_size=rows))
    marks = np.abs(y)[:, None] >= np.arange(4)
    return np.array(matrix), marks.astype(int) if multilabel else np.array(y), multilabel


@settings(deadline=None, max_examples=100)
@given(labelled_matrices(), st.booleans(), st.sampled_from([None, "a comment\nof two lines"]))
def test_libsvm_is_read_as_scikit_learn_reads_it(case, zero_based, comment):
    matrix, y, multilabel = case
    style = {"zero_based": zero_based, "multilabel": multilabel}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.svm")
        dump_svmlight_file(matrix, y, path, comment=comment, **style)
        their_x, their_y = load_svmlight_file(path, n_features=matrix.shape[1], **style)
        ours = read(path, index_base=0 if zero_based else 1)
    dense = to_dense(ours.inputs, matrix.shape[1]).dense
    assert_array_equal(dense, their_x.toarray().astype(np.float32), strict=True)
    if multilabel and ours.label_lists is not None:
        ends = ours.label_lists.indptr[1:-1]
        lists = [tuple(part) for part in np.split(ours.label_lists.indices, ends)]
        assert lists == [tuple(sorted(part)) for part in their_y]
    else:
        assert_array_equal(ours.labels, np.array(their_y, np.float64).ravel(), strict=True)


def test_the_sample_is_read_as_scikit_learn_reads_it():
    ours = read(SAMPLES["a9a"].train)
    theirs, y = load_svmlight_file(str(SAMPLES["a9a"].train))
    assert ours.features == theirs.shape[1]
    assert_array_equal(ours.inputs.indptr, theirs.indptr)
    assert_array_equal(ours.inputs.indices, theirs.indices)
    assert_array_equal(ours.inputs.values, theirs.data)
    assert_array_equal(ours.labels, y)


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=80),
    st.sampled_from([".svm", ".xmc", ".csv", ".tsv", ".txt", ".svm.gz", ".npz"]),
)
def test_any_bytes_are_data_or_a_data_error(content, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{ending}"
        path.write_bytes(content)
        try:
            raw = read(path)
        except DataError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
        else:
            assert raw.rows > 0
            assert all(math.isfinite(value) for value in raw.inputs.values)
