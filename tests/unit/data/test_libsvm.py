import os
import threading

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.csr import to_dense
from hogbatch.errors import DataError
from tests.support.reading import read

pytestmark = [
    pytest.mark.usefixtures("both_ways"),
    # Compiled, integers wrap and floats overflow without a word; interpreted, NumPy warns.
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


def dense(raw):
    return to_dense(raw.inputs, raw.features).dense.tolist()


def test_rows_labels_and_types(write):
    raw = read(write("a.svm", "+1 1:0.5 3:2\n-1\n2.5 2:-1e-3\n"))
    assert raw.labels.tolist() == [1, -1, 2.5]
    assert raw.label_lists is None
    assert dense(raw) == [[0.5, 0, 2], [0, 0, 0], [0, np.float32(-0.001), 0]]
    assert (raw.rows, raw.features, raw.index_base, raw.classes_hint) == (3, 3, 1, 0)
    assert [array.dtype for array in raw.inputs] == [np.float32, np.int64, np.int32, np.float32]


def test_features_count_from_zero_when_index_zero_occurs(write):
    raw = read(write("a.svm", "1 1:5\n1 0:3\n"))
    assert (raw.index_base, raw.features) == (0, 2)
    assert dense(raw) == [[0, 5], [3, 0]]


def test_the_index_base_can_be_told(write):
    raw = read(write("a.svm", "1 1:5\n"), index_base=0)
    assert (raw.index_base, dense(raw)) == (0, [[0, 5]])


def test_index_zero_where_features_count_from_one_is_an_error(write):
    with pytest.raises(DataError, match=r"a\.svm:3:3: feature index 0.*--index-base 0"):
        read(write("a.svm", "1 1:5\n\n1 0:3\n"), index_base=1)


def test_comments_query_ids_blank_lines_and_line_ends_do_not_matter(write):
    plain = read(write("a.svm", "1 1:5 2:1\n-1 2:7\n"))
    odd = "# 9 9:9\r\n1 qid:3 1:5 2:1 # 3:1 é\r\n\r\n  \n\t-1\tqid:4  2:7".encode("latin-1")
    raw = read(write("b.svm", odd))
    assert dense(raw) == dense(plain)
    assert raw.labels.tolist() == plain.labels.tolist()
    assert [raw.locate(row).rpartition(":")[2] for row in range(2)] == ["2", "5"]


def test_a_query_id_may_stand_where_labels_are_missing(write):
    raw = read(write("a.svm", "qid:1 3:1\n1,2 qid:1 1:1\n"))
    assert raw.label_lists.indptr.tolist() == [0, 0, 2]
    assert raw.features == 3


def test_label_lists_may_be_empty_and_come_sorted_without_doubles(write):
    raw = read(write("a.svm", "3,1,3 1:1\n 2:1\n1:4 2:5\n0, 4\n"))
    assert raw.labels is None
    assert raw.label_lists.indptr.tolist() == [0, 2, 2, 2, 4]
    assert raw.label_lists.indices.tolist() == [1, 3, 0, 4]
    assert dense(raw) == [[1, 0], [0, 1], [4, 5], [0, 0]]


def test_unsorted_features_are_sorted(write):
    raw = read(write("a.svm", "1 3:3 1:1\n1 2:2\n1 5:5 4:4\n"))
    assert raw.inputs.indices.tolist() == [0, 2, 1, 3, 4]
    assert raw.inputs.values.tolist() == [1, 3, 2, 4, 5]


def test_the_same_index_may_end_one_row_and_start_the_next(write):
    assert dense(read(write("a.svm", "1 2:1\n\n1 2:2\n1\n1 2:3\n"))) == [
        [0, 1],
        [0, 2],
        [0, 0],
        [0, 3],
    ]


def test_any_cut_into_blocks_reads_alike(write, monkeypatch):
    lines = "".join(f"{i % 2} {i + 1}:{i / 8} {i + 9}:-2\n" for i in range(40))
    whole = read(write("a.svm", lines))
    monkeypatch.setattr(text, "BLOCK_BYTES", 23)
    parts = read(write("b.svm", lines + "# the end"))
    for one, other in zip(whole.inputs, parts.inputs, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    np.testing.assert_array_equal(whole.labels, parts.labels)
    np.testing.assert_array_equal(whole.lines, parts.lines)


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        ("1 1:x", 5, "expected a number; got 'x'"),
        ("1 1:nan", 5, "expected a finite number within float32; got 'nan'"),
        ("1 1:-inf", 5, "expected a finite number"),
        ("1 1:1e400", 5, "expected a finite number within float32; got '1e400'"),
        ("1 1:1e39", 5, "expected a finite number"),
        ("nan 1:1", 1, "expected a finite number"),
        ("spam 1:1", 1, "expected a number; got 'spam'"),
        ("1 -1:1", 3, "cannot be negative; got '-1'"),
        ("1 1.5:1", 3, "whole feature index"),
        ("1 2147483647:1", 3, "whole feature index up to 2147483646; got '2147483647'"),
        ("1 99999999999999999999:1", 3, "whole feature index"),
        ("1 x:1", 3, "expected a number; got 'x'"),
        ("1 1:", 5, "expected a number; got ''"),
        ("1 :1", 3, "expected a number; got ''"),
        ("1 1: 2", 5, "expected a number; got ''"),
        ("1 1:2:3", 5, "expected a number; got '2:3'"),
        ("1 2", 3, "expected index:value; got '2'"),
        ("1 1:1 2", 7, "expected index:value; got '2'"),
        ("1, 1:1", 1, "expected a number; got '1, 1'"),
        ("1,,2 1:1", 3, "expected a number; got ''"),
        ("1 1:1-2", 5, "expected a number; got '1-2'"),
        ("1 qid:x 1:1", 3, "expected a number; got 'qid'"),
        ("1 4:1 2:1 4:2", 11, "feature index 4 occurs twice"),
        ("1.5,2 1:1", 1, "each label must be a whole number >= 0; got 1.5"),
        ("-1,2 1:1", 1, "got -1"),
        ("1 1:1\x00", 5, "expected a number"),
        ("1\xa01:1", 1, "expected a"),
    ],
)
def test_the_place_of_a_mistake_is_named(write, line, column, complaint):
    for name, more in (("a.svm", ""), ("b.svm", "1 3:1\n")):
        path = write(name, f"1 1:1\n\n{line}\n{more}".encode("latin-1"))
        with pytest.raises(DataError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}:3:{column}: ")
        assert complaint in str(caught.value)


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
    with pytest.raises(DataError, match=r"3 of 5 lines \(60\.00%\)"):
        read(path, bad_lines=0.59)


def test_index_zero_is_a_bad_line_where_features_count_from_one(write):
    path = write("a.svm", "1 1:1\n1 0:1\n")
    raw = read(path, index_base=1, bad_lines=0.5)
    assert (raw.rows, raw.features, raw.skipped.first[0].column) == (1, 1, 3)
    raw = read(path, bad_lines=0.5)
    assert (raw.rows, raw.features, raw.skipped.total) == (2, 2, 0)


@pytest.mark.parametrize("odd", [" 3:1", "3,-1 3:1"])
def test_rows_without_just_one_label_are_bad_where_few_and_labels_are_no_indices(write, odd):
    path = write("a.svm", f"1 1:1\n-1 2:1\n-1 3:1\n{odd}\n")
    raw = read(path, bad_lines=0.25)
    assert raw.labels.tolist() == [1, -1, -1]
    assert raw.label_lists is None
    with pytest.raises(DataError, match=r"a\.svm:4:\d: expected one label, as in most rows; got"):
        read(path)


def test_labels_that_are_no_indices_are_bad_where_most_are_lists(write):
    path = write("a.svm", "1,2 1:1\n3 2:1\n4,1.5 9:1\n2, 0 3:1\n")
    raw = read(path, bad_lines=0.25)
    assert raw.label_lists.indices.tolist() == [1, 2, 3, 0, 2]
    assert (raw.features, raw.lines.tolist()) == (3, [1, 2, 4])
    assert raw.skipped.first[0].describe("a").startswith("a:3:3: labels are lists in this file")


def test_a_label_of_a_pipe_is_named_with_its_column(tmp_path):
    path = tmp_path / "a.svm"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"1,2 1:1\n0.5 1:1\n2\n",))
    writer.start()
    raw = read(path, bad_lines=0.5)
    writer.join()
    assert raw.lines.tolist() == [1, 3]
    assert raw.skipped.first[0].describe("a").startswith("a:2:1: labels are lists in this file")


@pytest.mark.parametrize("content", ["", "# nothing\n"])
def test_a_file_without_rows_is_an_error(write, content):
    with pytest.raises(DataError, match=r"a\.svm is empty"):
        read(write("a.svm", content))


def test_the_largest_index_fits(write):
    assert read(write("a.svm", "1 2147483646:1\n")).features == 2**31 - 2
    assert read(write("a.svm", "1 2147483646:1\n"), index_base=0).features == 2**31 - 1
