import pytest

from hogbatch.data.csr import to_dense
from tests.support.reading import read, read_error

pytestmark = pytest.mark.usefixtures("both_ways")


def test_header_lists_and_empty_rows(write):
    raw = read(write("a.xmc", "5 4 7\n6,2 0:1 3:0.5\n 1:2\n1:3\n0\n\n"))
    assert (raw.rows, raw.features, raw.classes_hint, raw.index_base) == (5, 4, 7, 0)
    assert raw.labels is None
    assert raw.label_lists.indptr.tolist() == [0, 2, 2, 2, 3, 3]
    assert raw.label_lists.indices.tolist() == [2, 6, 0]
    dense = to_dense(raw.inputs, 4).dense.tolist()
    assert dense == [[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 3, 0, 0], [0] * 4, [0] * 4]
    assert raw.locate(3).endswith("a.xmc:5")


def test_one_label_in_every_row_is_a_list_and_blank_lines_after_the_last_row_do_not_count(write):
    raw = read(write("a.xmc", "2 1 2\r\n0 0:1\r\n1 0:1"))
    assert raw.label_lists.indices.tolist() == [0, 1]
    assert read(write("a.xmc", "1 1 1\n0 0:1\n\n\n")).rows == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", ":1:1: expected the header 'rows features labels'; got ''"),
        ("1 2\n0 0:1\n", ":1:1: expected the header"),
        ("1 2 -3\n0 0:1\n", ":1:1: expected the header"),
        ("1 99999999999 3\n0 0:1\n", ":1:1: expected the header"),
        ("9" * 5000 + " 2 2\n0 0:1\n", ":1:1: expected the header"),
        ("0 2 2\n", ":1:1: the header declares 0 rows"),
        ("3 2 2\n0 0:1\n1 1:1\n", ":1:1: the header declares 3 rows; the file has 2"),
        ("1 2 2\n0 0:1\n1 1:1\n", ":1:1: the header declares 1 rows; the file has 2"),
        ("2 2 2\n0 0:1\n1 2:1\n", ":3:3: feature 2, but the header declares 2 features"),
        ("2 2 2\n0 0:1\n1,5 1:1\n", ":3:3: label 5, but the header declares 2 labels"),
        ("2 2 2\n0 0:1\n1.5 1:1\n", ":3:1: labels are lists in this file"),
        ("1 2 2\n0 0:1 # no comments\n", ":2:7: expected index:value; got '#'"),
    ],
)
def test_what_breaks_the_header_or_the_grammar_is_named(write, content, complaint):
    path = write("a.xmc", content)
    assert read_error(path).startswith(f"{path}{complaint}")
    if "expected the header" in complaint:
        assert read_error(path, bad_lines=1.0).startswith(f"{path}{complaint}")


def test_bad_lines_are_left_out_but_counted_by_the_header(write):
    content = "6 4 7\n6,2 0:1\n7 1:1\n\n1 4:1\nx 1:1\n0.5 1:1\n\n"
    raw = read(write("a.xmc", content), bad_lines=0.7)
    assert raw.label_lists.indptr.tolist() == [0, 2, 2]
    assert (raw.features, raw.classes_hint, raw.lines.tolist()) == (4, 7, [2, 4])
    assert [(each.line, each.column) for each in raw.skipped.first] == [
        *((3, 1), (5, 3), (6, 1), (7, 1))
    ]
    more = write("b.xmc", content[:-1].replace("6", "7", 1))
    assert read_error(more, bad_lines=0.7).endswith(
        ":1:1: the header declares 7 rows; the file has 6"
    )
