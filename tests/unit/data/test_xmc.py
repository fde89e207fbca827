import pytest

from hogbatch.data.csr import to_dense
from hogbatch.errors import DataError
from tests.support.reading import read

pytestmark = pytest.mark.usefixtures("both_ways")


def test_header_lists_and_empty_rows(write):
    raw = read(write("a.xmc", "5 4 7\n6,2 0:1 3:0.5\n 1:2\n1:3\n0\n\n"))
    assert (raw.rows, raw.features, raw.classes_hint, raw.index_base) == (5, 4, 7, 0)
    assert raw.labels is None
    assert raw.label_lists.indptr.tolist() == [0, 2, 2, 2, 3, 3]
    assert raw.label_lists.indices.tolist() == [2, 6, 0]
    assert to_dense(raw.inputs, 4).dense.tolist() == [
        [1, 0, 0, 0.5],
        [0, 2, 0, 0],
        [0, 3, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
    assert raw.locate(3).endswith("a.xmc:5")


def test_one_label_in_every_row_is_still_a_list(write):
    raw = read(write("a.xmc", "2 1 2\r\n0 0:1\r\n1 0:1"))
    assert raw.label_lists.indices.tolist() == [0, 1]


def test_blank_lines_after_the_last_row_do_not_count(write):
    assert read(write("a.xmc", "1 1 1\n0 0:1\n\n\n")).rows == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", ":1:1: expected the header 'rows features labels'; got ''"),
        ("0 0:1\n", ":1:1: expected the header"),
        ("1 2\n0 0:1\n", ":1:1: expected the header"),
        ("1 2 -3\n0 0:1\n", ":1:1: expected the header"),
        ("1 99999999999 3\n0 0:1\n", ":1:1: expected the header"),
        ("0 2 2\n", ":1:1: the header declares 0 rows"),
        ("3 2 2\n0 0:1\n1 1:1\n", ":1:1: the header declares 3 rows; the file has 2"),
        ("1 2 2\n0 0:1\n1 1:1\n", ":1:1: the header declares 1 rows; the file has 2"),
        ("2 2 2\n0 0:1\n1 2:1\n", ":3:3: feature 2, but the header declares 2 features"),
        ("2 2 2\n0 0:1\n1,5 1:1\n", ":3:3: label 5, but the header declares 2 labels"),
        ("2 2 2\n0 0:1\n1.5 1:1\n", ":3:1: labels are lists in this file"),
        ("2 2 2\n0 0:1\n1 1:1 1:1\n", ":3:7: feature index 1 occurs twice"),
        ("2 2 2\n0 0:1\n1 1:a\n", ":3:5: expected a number; got 'a'"),
        ("2 2 2\n0 0:1\n1 -1:1\n", ":3:3: a feature index cannot be negative"),
        ("1 2 2\n0 0:1 # no comments\n", ":2:7: expected index:value; got '#'"),
    ],
)
def test_what_breaks_the_header_or_the_grammar_is_named(write, content, complaint):
    path = write("a.xmc", content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{complaint}")


def test_bad_lines_are_left_out_but_counted_by_the_header(write):
    content = "6 4 7\n6,2 0:1\n7 1:1\n\n1 4:1\nx 1:1\n0.5 1:1\n\n"
    raw = read(write("a.xmc", content), bad_lines=0.7)
    assert raw.label_lists.indptr.tolist() == [0, 2, 2]
    assert (raw.features, raw.classes_hint, raw.lines.tolist()) == (4, 7, [2, 4])
    places = [mistake.describe("a").split(": ", 1) for mistake in raw.skipped.first]
    assert [place for place, _ in places] == ["a:3:1", "a:5:3", "a:6:1", "a:7:1"]
    assert places[0][1] == "label 7, but the header declares 7 labels, counted from 0"
    with pytest.raises(DataError, match=r":1:1: the header declares 7 rows; the file has 6$"):
        read(write("b.xmc", content[:-1].replace("6", "7", 1)), bad_lines=0.7)


def test_a_bad_header_cannot_be_left_out(write):
    for header in ("2 2", "2 2 x", "9" * 5000 + " 2 2"):
        with pytest.raises(DataError, match=r"a\.xmc:1:1: expected the header"):
            read(write("a.xmc", header + "\n0 0:1\n1 1:1\n"), bad_lines=1.0)
