import gzip

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.raw import Columns
from hogbatch.errors import DataError
from tests.support.reading import read

pytestmark = pytest.mark.usefixtures("both_ways")


def test_the_last_column_is_the_label(write):
    raw = read(write("a.csv", "1,2,3\n4,5.5,-6\n"))
    assert raw.inputs.dense.tolist() == [[1, 2], [4, 5.5]]
    assert raw.inputs.dense.dtype == np.float64
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
    np.testing.assert_array_equal(raw.inputs.dense, rows[:, :2], strict=True)
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


@pytest.mark.parametrize("first", ["1,nan", "1,", "1e400,2", "1,NA", "?,2", "null,N/A"])
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
    with pytest.raises(DataError, match="no label column 'y'"):
        read(path, features=3, label="y")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("\n\n", "only blanks"),
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
    assert [mistake.describe("a").split(": ")[0] for mistake in raw.skipped.first] == [
        "a:3:4",
        "a:5:3",
        "a:7:7",
    ]


def test_a_table_without_one_good_line_is_an_error(write):
    with pytest.raises(DataError, match=r"all 2 lines are malformed: .*a\.csv:2:1: "):
        read(write("a.csv", "a,b\nx,1\ny,2\n"), bad_lines=1.0)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_data_frame_is_not_a_feature(write, name):
    raw = read(write("a.csv", f"{name},a,b\n1,5,0\n2,6,1\n"))
    assert raw.inputs.dense.tolist() == [[5], [6]]
    assert raw.labels.tolist() == [0, 1]
    assert raw.notes == ("column 0 is the index of a data frame and is left out",)
    for content in (f"{name},a,b\n7,8,1\n", "b,a\n1,8\n", f"{name},a\n7,8\n"):
        later = read(write("b.csv", content), features=1, columns=raw.columns)
        assert (later.inputs.dense.tolist(), later.notes) == ([[8]], ())
    assert read(write("c.csv", "a,\n5,0\n6,1\n")).labels.tolist() == [0, 1]
    assert read(write("d.csv", f"{name},a\n1,5\n2,6\n"), label="0").labels.tolist() == [1, 2]


def test_names_and_label_of_a_header_are_kept(write):
    raw = read(write("a.csv", "a, b ,c\n1,2,3\n"), label="b")
    assert raw.columns == Columns(("a", "c"), "b", 1)
    assert raw.notes == ()
    assert read(write("b.csv", "1,2,3\n")).columns == Columns((), None, 2)


@pytest.mark.parametrize(
    ("content", "setting", "rows", "names", "note"),
    [
        ("0,1,2\n5,6,1\n7,8,0\n", "auto", 2, ("0", "1"), "header of column numbers (0 to 2)"),
        (",0,1\n0,6,1\n1,8,0\n", "auto", 2, ("0",), "header of column numbers (0 to 1)"),
        ("0,1,2\n5,6,1\n7,8,0\n", "no", 3, (), ""),
        ("7,8,9\n5,6,1\n7,8,0\n", "yes", 2, ("7", "8"), ""),
        ("a,2020,y\n5,6,1\n7,8,0\n", "auto", 2, ("a", "2020"), "because column 0 has 'a' there"),
        ("0,1,2\n", "auto", 1, (), ""),
        ("0,1\n5,6\n", "auto", 2, (), ""),
        ("1,2,3\n5,6,1\n7,8,0\n", "auto", 3, (), ""),
    ],
)
def test_which_first_lines_are_headers(write, content, setting, rows, names, note):
    raw = read(write("a.csv", content), header=setting)
    assert (raw.rows, raw.columns.names) == (rows, names)
    assert bool(raw.notes) == bool(note) and note in "".join(raw.notes)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", r"1:9: column 2: expected a number; got 'setosa'"),
        ("x,1\ny,2\nz,3\n", r"1:1: column 0: expected a number; got 'x'"),
        ("5.1,NA,1\n4.9,3,0\n", r"1:5: column 1: expected a number; got 'NA'"),
        ("a,b,kind\n5.1,3.5,setosa\n", r"2:9: column 2 \(kind\): expected a number; got 'setosa'"),
        ("1,two,3\n", r"1:3: column 1: expected a number; got 'two'"),
    ],
)
def test_text_in_the_rows_is_an_error_at_its_first_place(write, content, place):
    with pytest.raises(DataError, match=rf"a\.csv:{place}"):
        read(write("a.csv", content))


KNOWN = Columns(("a", "b"), "y", 2)


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("a,b,y\n1,2,0\n3,4,1\n5,6,0\n", [0, 1, 0]),
        ("y,b,a\n0,2,1\n1,4,3\n0,6,5\n", [0, 1, 0]),
        ("b,a\n2,1\n4,3\n6,5\n", None),
        ("id,b,y,when,a\nx-1,2,0,,1\n17,4,1,now, 3\n7,6,0,\r,5\n", [0, 1, 0]),
        ('id,b,y,a,z\n"x,1",2,0,1,"""q"""\n17,4,1,3,\n7,6,0,5,nan\n', [0, 1, 0]),
        ("1,2,0\n3,4,1\n5,6,0\n", [0, 1, 0]),
        ("1,2\n3,4\n5,6\n", None),
    ],
)
def test_columns_are_found_by_their_names(write, content, labels):
    raw = read(write("a.csv", content), features=2, columns=KNOWN)
    assert raw.inputs.dense.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert raw.inputs.dense.flags.c_contiguous
    assert (raw.labels if labels is None else raw.labels.tolist()) == labels


def test_lines_with_a_mistake_are_told_from_ignored_cells(write):
    path = write("a.csv", "id,b,a\nx,1,2\ny,z,2\nx,1\n,3,4\n")
    raw = read(path, features=2, columns=KNOWN, bad_lines=0.5)
    assert raw.inputs.dense.tolist() == [[2, 1], [4, 3]]
    assert [mistake.describe("a") for mistake in raw.skipped.first] == [
        "a:3:3: column 1 (b): expected a number; got 'z'",
        "a:4:4: 2 columns; expected 3 as in line 1",
    ]
    assert raw.messages[0] == f"{path}: 1 column is ignored because the training data lack it: 'id'"
