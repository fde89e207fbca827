import numpy as np
import pytest

from hogbatch.data.csr import to_dense
from tests.support.reading import read, read_error

pytestmark = [
    pytest.mark.usefixtures("both_ways"),
    # Compiled, integers wrap and floats overflow without a word; interpreted, NumPy warns.
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


def dense(raw):
    return to_dense(raw.inputs, raw.features).dense.tolist()


def test_rows_labels_and_types(write):
    raw = read(write("a.svm", "+1 1:0.5 3:2\n-1\n2.5 2:-1e-3\n"))
    assert (raw.labels.tolist(), raw.label_lists) == ([1, -1, 2.5], None)
    assert (raw.labels.dtype, read(write("b.svm", "+1 1:1\n-1\n")).labels.dtype) == ("f8", "i8")
    assert dense(raw) == [[0.5, 0, 2], [0, 0, 0], [0, np.float32(-0.001), 0]]
    assert (raw.rows, raw.features, raw.index_base, raw.classes_hint) == (3, 3, 1, 0)
    assert [array.dtype for array in raw.inputs] == [np.float32, np.int64, np.int32, np.float32]


def test_features_count_from_zero_when_index_zero_occurs_unless_the_base_is_told(write):
    raw = read(path := write("a.svm", "1 1:5\n\n1 0:3\n"))
    assert (raw.index_base, dense(raw)) == (0, [[0, 5], [3, 0]])
    complaint = "a.svm:3:3: feature index 0, but features are counted from 1"
    assert complaint in (found := read_error(path, index_base=1)) and "--index-base 0" in found
    raw = read(path, index_base=1, bad_lines=0.5)
    assert (raw.rows, raw.features, raw.skipped.total) == (1, 1, 1)
    raw = read(write("a.svm", "1 1:5\n"), index_base=0)
    assert (raw.index_base, dense(raw)) == (0, [[0, 5]])


def test_comments_query_ids_blank_lines_and_line_ends_do_not_matter(write):
    odd = "# 9 9:9\r\n1 qid:3 1:5 2:1 # 3:1 é\r\n\r\n  \n\t-1\tqid:4  2:7".encode("latin-1")
    raw = read(write("b.svm", odd))
    assert (dense(raw), raw.labels.tolist()) == ([[5, 1], [0, 7]], [1, -1])
    assert [raw.locate(row).rpartition(":")[2] for row in range(2)] == ["2", "5"]
    lists = read(write("a.svm", "qid:1 3:1\n1,2 qid:1 1:1\n"))
    assert (lists.label_lists.indptr.tolist(), lists.features) == ([0, 0, 2], 3)


def test_label_lists_may_be_empty_and_come_sorted_without_doubles(write):
    raw = read(write("a.svm", "3,1,3 1:1\n 2:1\n1:4 2:5\n0, 4\n"))
    assert raw.labels is None
    assert raw.label_lists.indptr.tolist() == [0, 2, 2, 2, 4]
    assert raw.label_lists.indices.tolist() == [1, 3, 0, 4]
    assert dense(raw) == [[1, 0], [0, 1], [4, 5], [0, 0]]


def test_features_are_sorted_and_may_be_the_same_in_two_rows(write):
    raw = read(write("a.svm", "1 3:3 1:1\n1 2:2\n1\n1 5:5 4:4\n1 5:6\n"))
    assert raw.inputs.indices.tolist() == [0, 2, 1, 3, 4, 4]
    assert raw.inputs.values.tolist() == [1, 3, 2, 4, 5, 6]


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        ("1 1:x", 5, "expected a number; got 'x'"),
        ("1 1:nan", 5, "expected a finite number within float32; got 'nan'"),
        ("1 1:1e400", 5, "expected a finite number within float32; got '1e400'"),
        ("1 1:1e39", 5, "expected a finite number"),
        ("nan 1:1", 1, "expected a finite number"),
        ("spam 1:1", 1, "expected a number; got 'spam'"),
        ("1 -1:1", 3, "cannot be negative; got '-1'"),
        ("1 1.5:1", 3, "whole feature index"),
        ("1 2147483647:1", 3, "whole feature index up to 2147483646; got '2147483647'"),
        ("1 99999999999999999999:1", 3, "whole feature index"),
        ("1 1:", 5, "expected a number; got ''"),
        ("1 :1", 3, "expected a number; got ''"),
        ("1 1:2:3", 5, "expected a number; got '2:3'"),
        ("1 1:1 2", 7, "expected index:value; got '2'"),
        ("1, 1:1", 1, "expected a number; got '1, 1'"),
        ("1,,2 1:1", 3, "expected a number; got ''"),
        ("1 1:1-2", 5, "expected a number; got '1-2'"),
        ("1 qid:x 1:1", 3, "expected a number; got 'qid'"),
        ("1 4:1 2:1 4:2", 11, "feature index 4 occurs twice"),
        ("-1,2.5 1:1", 1, "each label must be a whole number >= 0; got -1"),
        ("1 1:1\x00", 5, "expected a number"),
        ("1\xa01:1", 1, "expected a"),
    ],
)
def test_the_place_of_a_mistake_is_named(write, line, column, complaint):
    for name, more in (("a.svm", ""), ("b.svm", "1 3:1\n")):
        path = write(name, f"1 1:1\n\n{line}\n{more}".encode("latin-1"))
        found = read_error(path)
        assert found.startswith(f"{path}:3:{column}: ") and complaint in found


def test_bad_lines_are_left_out_and_rows_keep_their_lines(write):
    path = write("a.svm", "1 1:1\n1 2:x\n\n-1 3:1 3:2\n# nothing\n-1 4:4\n1 9:1e400")
    raw = read(path, bad_lines=0.6)
    assert (raw.labels.tolist(), raw.features) == ([1, -1], 4)
    assert dense(raw) == [[1, 0, 0, 0], [0, 0, 0, 4]]
    assert [raw.locate(row) for row in range(2)] == [f"{path}:1", f"{path}:6"]
    assert [mistake.describe("a") for mistake in raw.skipped.first] == [
        "a:2:5: expected a number; got 'x'",
        "a:4:8: feature index 3 occurs twice in one row",
        "a:7:5: expected a finite number within float32; got '1e400'",
    ]
    assert "3 of 5 lines (60.00%)" in read_error(path, bad_lines=0.59)


@pytest.mark.parametrize("odd", [" 3:1", "3,-1 3:1"])
def test_rows_without_just_one_label_are_bad_where_few_and_labels_are_no_indices(write, odd):
    path = write("a.svm", f"1 1:1\n-1 2:1\n-1 3:1\n{odd}\n")
    raw = read(path, bad_lines=0.25)
    assert (raw.labels.tolist(), raw.label_lists) == ([1, -1, -1], None)
    assert "a.svm:4:" in (found := read_error(path))
    assert "expected one label, as in most rows; got" in found


def test_labels_that_are_no_indices_are_bad_where_most_are_lists(write, pipe):
    content = "1,2 1:1\n3 2:1\n4,1.5 9:1\n2, 0 3:1\n"
    for path in (write("a.svm", content), pipe("b.svm", content.encode())):
        raw = read(path, bad_lines=0.25)
        assert raw.label_lists.indices.tolist() == [1, 2, 3, 0, 2]
        assert (raw.features, raw.lines.tolist()) == (3, [1, 2, 4])
        (mistake,) = raw.skipped.first
        assert mistake.describe("a").startswith("a:3:3: labels are lists in this file")


ROWS = "0 1:1\n1 2:1\n" * 30


@pytest.mark.parametrize("odd", ["1:1 2:1", "0,1 2:1", "1,0"])
def test_a_few_rows_without_just_one_label_do_not_make_lists_of_all_labels(write, odd):
    path = write("a.svm", f"{ROWS}{odd}\n")
    found = read_error(path)
    got = "2" if "," in odd else "none"
    assert "a.svm:61:" in found and f"expected one label, as in most rows; got {got} " in found
    assert "(--loss multilabel: labels are lists)" in found
    raw = read(path, bad_lines=0.02)
    assert (raw.rows, raw.labels.tolist()) == (60, [0, 1] * 30)
    assert read(path, lists=True).rows == 61 == len(read(path, lists=True).label_lists.indptr) - 1
    raw = read(path, labels=False)  # of a prediction
    assert (raw.rows, raw.labels, raw.label_lists) == (61, None, None)
    assert read(write("b.svm", ROWS + "0,1 2:1\n" * 4)).label_lists is not None


def test_whole_numbers_that_float64_cannot_hold_are_text(write):
    labels = ["123456789012349670", "+123456789012349671", "-5"]
    raw = read(write("a.svm", "".join(f"{label} 1:1 # 1\n" for label in labels)))
    assert raw.label_names == ("-5", "123456789012349670", "123456789012349671")
    assert raw.labels.tolist() == [1, 2, 0]
    assert read(write("b.svm", "1e20 1:1\n2 1:1\n")).labels.tolist() == [1e20, 2]


@pytest.mark.parametrize("content", ["", "# nothing\n"])
def test_a_file_without_rows_is_an_error(write, content):
    assert "a.svm is empty" in read_error(write("a.svm", content))


def test_the_largest_index_fits(write):
    path = write("a.svm", "1 2147483646:1\n")
    assert [read(path, index_base=base).features for base in (1, 0)] == [2**31 - 2, 2**31 - 1]
