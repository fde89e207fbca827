"""The compiled parsers, and readers compared with scikit-learn and fed with any bytes."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from hogbatch.data import sparse, sparse_rows
from hogbatch.data.csr import to_dense
from hogbatch.data.readers import READERS
from hogbatch.data.text import TextBlock
from hogbatch.errors import DataError
from tests.support.property_tests import max_examples
from tests.support.reading import read

SPARSE = sparse.SparseFormat(False, 0)
# Compiled code wraps integers and overflows floats silently; NumPy warns in interpreted code.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def test_usual_lines_are_compiled_into_arrays_of_the_size_that_is_checked():
    text = "".join(f"{line}\n" for line in ["1 2:3", "0,5 7:-0.5 9:1e-3", " 2:1", "4"]).encode()
    arrays = sparse_rows.allocate(counts := SPARSE.max_counts(text))
    assert SPARSE.byte_size(counts) == sum(array.nbytes for array in arrays)
    compiled, by_line = SPARSE.parse(TextBlock(7, text)), SPARSE.parse_lines(TextBlock(7, text))
    assert compiled.summary == by_line.summary
    joined = sparse_rows.join([by_line.rows, by_line.rows])
    for own, other, twice in zip(compiled.rows, by_line.rows, joined, strict=True):
        assert_array_equal(own, other, strict=True)
        assert len(twice) in (2 * len(own), 2 * len(own) - 1)  # an indptr starts with 0


@st.composite
def labelled_matrices(draw):
    """A matrix with one label or (for True) one to four labels per row."""
    rows, features = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    value = st.one_of(st.just(0.0), st.floats(-1e6, 1e6, width=32))
    matrix = [[draw(value) for _ in range(features)] for _ in range(rows)]
    multilabel = draw(st.booleans())
    y = draw(st.lists(st.integers(-3, 3), min_size=rows, max_size=rows))
    marks = np.abs(y)[:, None] >= np.arange(4)
    return np.array(matrix), marks.astype(int) if multilabel else np.array(y), multilabel


@max_examples(40)
@given(labelled_matrices(), st.booleans(), st.sampled_from([None, "a comment\nof two lines"]))
def test_libsvm_is_read_as_scikit_learn_reads_it(case, zero_based, comment):
    matrix, y, multilabel = case
    style = {"zero_based": zero_based, "multilabel": multilabel}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.svm")
        dump_svmlight_file(matrix, y, path, comment=comment, **style)
        their_x, their_y = load_svmlight_file(path, n_features=matrix.shape[1], **style)
        ours = read(path, index_base=0 if zero_based else 1, lists=multilabel)
    dense = to_dense(ours.inputs, matrix.shape[1]).dense
    assert_array_equal(dense, their_x.toarray().astype(np.float32), strict=True)
    if multilabel and ours.label_lists is not None:
        ends = ours.label_lists.indptr[1:-1]
        lists = [tuple(part) for part in np.split(ours.label_lists.indices, ends)]
        assert lists == [tuple(sorted(part)) for part in their_y]
    else:
        assert_array_equal(ours.labels, np.array(their_y, np.float64).ravel())


@max_examples(150)
@given(
    st.binary(max_size=80),
    st.sampled_from([*READERS, ".txt", ".svm.gz"]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_any_bytes_are_data_or_a_data_error(content, ending, bad_lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{ending}"
        path.write_bytes(content)
        try:
            raw = read(path, bad_lines=bad_lines)
        except DataError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
        else:
            assert raw.rows > 0
            assert all(math.isfinite(value) for value in raw.inputs.values)
