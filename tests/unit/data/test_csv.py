import numpy as np
import pytest

from hogbatch.data.raw import Columns
from tests.support.reading import packed, read, read_error

pytestmark = pytest.mark.usefixtures("both_ways")

KNOWN = Columns(("a", "b"), "y", 2)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "1\t2\t3\n4\t5\t6\n"),
        ("a.csv", "1,2,3\r\n4,5,6"),
        ("a.csv", "1, 2,  3\n4 ,5,6\n"),
        ("a.csv", "\n1,2,3\n\n4,5,6\n\n"),
        ("a.csv", '"1","2","3"\n4,5,"6"\n'),
        ("a.csv", '\ufeff"x, too",y,é\n1,2,3\n4,5,6\n'),
        ("a.csv", b"x,\xff\xfe,z\n1,2,3\n4,5,6\n"),
        ("a.csv.gz", packed("a.csv.gz", "1,2,3\n4,5,6\n")),
    ],
)
def test_ways_to_write_the_same_table(write, name, content):
    raw = read(write(name, content))
    assert raw.inputs.dense.tolist() == [[1, 2], [4, 5]] and raw.labels.tolist() == [3, 6]
    assert raw.inputs.dense.dtype == np.float64 and raw.inputs.dense.flags.c_contiguous
    assert (raw.features, raw.index_base, raw.label_lists) == (2, None, None)


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        ('1, "a,""b", 3', 4, "column 1 (b): expected a number; got 'a,\"b'"),
        ('"1","2","3" ,"4"', 14, "4 columns"),
        ("1,2", 4, "2 columns; expected 3 as in line 1"),
        ("1,2,", 5, "column 2 (c): expected a number; got ''"),
        ("nan,2,3", 1, "column 0 (a): expected a finite number within float32; got 'nan'"),
        ("1,1e400,3", 3, "column 1 (b): expected a finite number within float32; got '1e400'"),
        ("1,1-2,3", 3, "column 1 (b): expected a number; got '1-2'"),
        ('1,"' + "9" * 140_000 + '",3', 1, "field larger than field limit"),
    ],
)
def test_the_place_of_a_mistake_is_named(write, line, column, complaint):
    path = write("a.csv", f"a,b,c\n1,2,3\n\n{line}\n1,2,3\n".encode("latin-1"))
    assert read_error(path).startswith(f"{path}:4:{column}: {complaint}")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("a,b\n", "has a header and no rows"),
        ("1\n2\n", ":1:1: expected features and a label"),
        ('"' + "x" * 140_000 + '",b\n', ":1:1: field larger than field limit"),
        ("1,NA\n1,2\n", ":1:3: column 1: expected a number; got 'NA'"),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "1:9: column 2: expected a number; got 'setosa'"),
        ("a,b,kind\n5.1,3.5,setosa\n", "2:9: column 2 (kind): expected a number; got 'setosa'"),
    ],
)
def test_what_is_no_table_of_numbers_is_an_error(write, content, complaint):
    assert complaint in read_error(write("a.csv", content))


def test_the_label_column_goes_by_name_or_number_and_may_be_missing(write):
    path = write("a.csv", "a, b ,c\n1,2,3\n")
    for label in ("b", "1"):
        raw = read(path, label=label)
        assert (raw.inputs.dense.tolist(), raw.labels.tolist()) == ([[1, 3]], [2])
        assert (raw.columns, raw.notes) == (Columns(("a", "c"), "b", 1), ())
        assert raw.locate(0).endswith("a.csv:2")
    assert read_error(path, label="d").endswith("no label column 'd': its 3 columns are a, b, c")
    raw = read(path, features=3)
    assert (raw.inputs.dense.tolist(), raw.labels) == ([[1, 2, 3]], None)
    assert read(path, features=2).labels.tolist() == [3]
    assert read(path, features=3, label="b").labels.tolist() == [2]
    bare = write("b.csv", "1,2,3\n")
    assert read(bare).columns == Columns((), None, 2)
    assert "'3': its 3 columns have no names" in read_error(bare, label="3")


@pytest.mark.parametrize("first", ["a,b,c", "9,9,9"])
def test_bad_lines_are_left_out_and_rows_keep_their_lines(write, first):
    path = write("a.csv", f"{first}\n1,2,3\n1,2\n\n4,nan,6\n7,8,9\n1,2,3,4\n")
    raw = read(path, bad_lines=0.6)
    skip = int(first == "9,9,9")
    assert raw.inputs.dense[skip:].tolist() == [[1, 2], [7, 8]]
    assert raw.labels[skip:].tolist() == [3, 9]
    assert raw.locate(1 + skip) == f"{path}:6"
    assert [(each.line, each.column) for each in raw.skipped.first] == [(3, 4), (5, 3), (7, 7)]


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_data_frame_is_not_a_feature(write, name):
    raw = read(write("a.csv", f"{name},a,b\n1,5,0\n2,6,1\n"))
    assert (raw.inputs.dense.tolist(), raw.labels.tolist()) == ([[5], [6]], [0, 1])
    assert raw.notes == ("column 0 is the index of a data frame and is left out",)
    for content in (f"{name},a,b\n7,8,1\n", "b,a\n1,8\n", f"{name},a\n7,8\n"):
        later = read(write("b.csv", content), features=1, columns=raw.columns)
        assert (later.inputs.dense.tolist(), later.notes) == ([[8]], ())
    assert read(write("c.csv", "a,\n5,0\n6,1\n")).labels.tolist() == [0, 1]
    assert read(write("d.csv", f"{name},a\n1,5\n2,6\n"), label="0").labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("y,b,a\n0,2,1\n1,4,3\n", [0, 1]),
        ("b,a\n2,1\n4,3\n", None),
        ("id,b,y,when,a\nx-1,2,0,,1\n17,4,1,\r, 3\n", [0, 1]),
        ('id,b,y,a,z\n"x,1",2,0,1,"""q"""\n17,4,1,3,nan\n', [0, 1]),
        ("1,2,0\n3,4,1\n", [0, 1]),
        ("1,2\n3,4\n", None),
    ],
)
def test_columns_are_found_by_their_names(write, content, labels):
    raw = read(write("a.csv", content), features=2, columns=KNOWN)
    assert raw.inputs.dense.tolist() == [[1, 2], [3, 4]] and raw.inputs.dense.flags.c_contiguous
    assert (raw.labels if labels is None else raw.labels.tolist()) == labels
