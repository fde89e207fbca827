import gzip

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.readers import read
from hogbatch.errors import DataError

pytestmark = pytest.mark.usefixtures("both_ways")


def test_the_last_column_is_the_label(write):
    raw = read(write("a.csv", "1,2,3\n4,5.5,-6\n"))
    assert raw.inputs.dense.tolist() == [[1, 2], [4, 5.5]]
    assert raw.inputs.dense.dtype == np.float32
    assert raw.inputs.dense.flags.c_contiguous
    assert raw.labels.tolist() == [3, -6]
    assert (raw.features, raw.index_base, raw.label_lists) == (2, None, None)


@pytest.mark.parametrize("label", ["b", "1"])
def test_the_label_column_goes_by_name_or_number(write, label):
    raw = read(write("a.csv", "a,b,c\n1,2,3\n"), label=label)
    assert (raw.inputs.dense.tolist(), raw.labels.tolist()) == ([[1, 3]], [2])
    assert raw.locate(0).endswith("a.csv:2")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "1\t2\t3\n4\t5\t6\n"),
        ("a.csv", "1\t2\t3\n4\t5\t6\n"),
        ("a.csv", "1,2,3\r\n4,5,6"),
        ("a.csv", "1, 2,  3\n4 ,5,6\n"),
        ("a.csv", "\n1,2,3\n\n4,5,6\n\n"),
        ("a.csv", '"1","2","3"\n4,5,"6"\n'),
        ("a.csv", "\ufeffx,y,z\n1,2,3\n4,5,6\n"),
        ("a.csv", '"x, too",y,é\n1,2,3\n4,5,6\n'),
        ("a.csv", b"x,\xff\xfe,z\n1,2,3\n4,5,6\n"),
        ("a.csv.gz", gzip.compress(b"1,2,3\n4,5,6\n", mtime=0)),
    ],
)
def test_ways_to_write_the_same_table(write, name, content):
    raw = read(write(name, content))
    assert raw.inputs.dense.tolist() == [[1, 2], [4, 5]]
    assert raw.labels.tolist() == [3, 6]


def test_any_cut_into_blocks_reads_alike(write, monkeypatch):
    rows = np.arange(120).reshape(-1, 3) / 7
    path = write("a.csv", "x,y,z\n\n" + "\n".join(",".join(map(str, row)) for row in rows))
    monkeypatch.setattr(text, "BLOCK_BYTES", 60)
    raw = read(path)
    np.testing.assert_array_equal(raw.inputs.dense, rows[:, :2].astype(np.float32))
    np.testing.assert_array_equal(raw.labels, rows[:, 2])
    np.testing.assert_array_equal(raw.lines, np.arange(40) + 3)


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        ('1, "a,""b", 3', 4, "column 1 (b): expected a number; got 'a,\"b'"),
        ('"1","2","3" ,"4"', 14, "4 columns"),
        ("1,2", 4, "2 columns; expected 3 as in line 1"),
        ("1,2,3,4", 7, "4 columns; expected 3 as in line 1"),
        ("1 2,3", 6, "2 columns"),
        ("1,two,3", 3, "column 1 (b): expected a number; got 'two'"),
        ("1,,3", 3, "column 1 (b): expected a number; got ''"),
        ("1,2,", 5, "column 2 (c): expected a number; got ''"),
        ("nan,2,3", 1, "column 0 (a): expected a finite number within float32; got 'nan'"),
        ("1,2,inf", 5, "column 2 (c): expected a finite number"),
        ("1,1e400,3", 3, "column 1 (b): expected a finite number within float32; got '1e400'"),
        ("1,1-2,3", 3, "column 1 (b): expected a number; got '1-2'"),
        ("1,\xff,3", 3, "column 1 (b): expected a number"),
        ('1,"' + "9" * 140_000 + '",3', 1, "field larger than field limit"),
    ],
)
def test_the_place_of_a_mistake_is_named(write, line, column, complaint):
    path = write("a.csv", f"a,b,c\n1,2,3\n\n{line}\n1,2,3\n".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:4:{column}: {complaint}")


@pytest.mark.parametrize("first", ["1,nan", "1,", "1e400,2"])
def test_a_first_line_with_a_bad_number_is_no_header(write, first):
    with pytest.raises(DataError, match=r"a\.csv:1:\d: column \d: expected a"):
        read(write("a.csv", f"{first}\n1,2\n"))


def test_a_label_column_that_is_not_there_names_those_that_are(write):
    with pytest.raises(DataError, match=r"no label column 'd': its 3 columns are a, b, c$"):
        read(write("a.csv", "a,b,c\n1,2,3\n"), label="d")
    with pytest.raises(DataError, match=r"'3': its 3 columns have no names; .* from 0 to 2$"):
        read(write("a.csv", "1,2,3\n"), label="3")


def test_a_file_as_wide_as_the_model_has_no_label_column(write):
    path = write("a.csv", "a,b,c\n1,2,3\n")
    raw = read(path, features=3)
    assert (raw.inputs.dense.tolist(), raw.labels) == ([[1, 2, 3]], None)
    assert read(path, features=2).labels.tolist() == [3]
    assert read(path, features=3, label="b").labels.tolist() == [2]
    assert read(path, features=3, label="y").labels is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("\n\n", "nothing but blanks"),
        ("a,b\n", "has a header and no rows"),
        ("1\n2\n", ":1:1: expected features and a label"),
        ("1;2\n", ":1:1: expected features and a label"),
        ('"' + "x" * 140_000 + '",b\n', ":1:1: field larger than field limit"),
    ],
)
def test_what_is_no_table_is_an_error(write, content, complaint):
    with pytest.raises(DataError, match=complaint):
        read(write("a.csv", content))


@pytest.mark.parametrize("first", ["a,b,c", "9,9,9"])
def test_bad_lines_are_left_out_and_rows_keep_their_lines(write, first):
    path = write("a.csv", f"{first}\n1,2,3\n1,2\n\n4,nan,6\n7,8,9\n1,2,3,4\n")
    raw = read(path, bad_lines=0.6)
    skip = int(first == "9,9,9")
    assert raw.inputs.dense[skip:].tolist() == [[1, 2], [7, 8]]
    assert raw.labels[skip:].tolist() == [3, 9]
    assert raw.locate(1 + skip) == f"{path}:6"
    assert [mistake.where("a").split(": ")[0] for mistake in raw.skipped.first] == [
        "a:3:4",
        "a:5:3",
        "a:7:7",
    ]


def test_a_table_without_one_good_line_is_an_error(write):
    with pytest.raises(DataError, match=r"not one of 2 lines is as it should be: .*a\.csv:2:1: "):
        read(write("a.csv", "a,b\nx,1\ny,2\n"), bad_lines=1.0)
