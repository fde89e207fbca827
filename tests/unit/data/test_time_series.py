"""Files in the .ts format of aeon and sktime."""

import numpy as np
import pytest

from tests.support.reading import packed, read, read_error, read_for_model

HEADER = "# a comment\n% another\n@problemName a\n@univariate false\n@classLabel true b c\n@data\n"
ROWS = "1,2,3:4,5,6:c\n\n1.5,-2e3:0,7:b\n"
PADDED = [[[1, 4], [2, 5], [3, 6]], [[0, 0], [1.5, 0], [-2000, 7]]]


@pytest.mark.parametrize("name", ["a.ts", "a.TS.gz", "a", "a.txt"])
def test_sequences_are_rows_of_steps_with_zeros_in_front(write, name):
    raw = read(write(name, packed(name, HEADER + ROWS)))
    assert (raw.shape, raw.label_names, raw.labels.tolist()) == ((3, 2), ("b", "c"), [1, 0])
    np.testing.assert_array_equal(raw.inputs.dense.reshape(2, 3, 2), PADDED)
    assert raw.locate(1).endswith(f"{name}:9")
    assert raw.notes == ()


@pytest.mark.parametrize(
    ("tags", "row", "labels"),
    [
        ("@targetLabel true\n", "1,2:0.5", [0.5]),
        ("@classLabel false\n@TARGETLABEL true\n", "1,2:3", [3]),
        ("@classLabel false\n", "1,2", None),
        ("", "1,2:-1", [0]),
    ],
)
def test_tags_tell_what_the_labels_are(write, tags, row, labels):
    raw = read(write("a.ts", f"{tags}@DATA\r\n{row}\r\n"))
    assert raw.inputs.dense.tolist() == [[1, 2]]
    assert (raw.labels if raw.labels is None else raw.labels.tolist()) == labels


@pytest.mark.parametrize(
    ("features", "rows", "notes"),
    [
        (8, [[0, 0, 1, 4, 2, 5, 3, 6], [0, 0, 0, 0, 1.5, 0, -2000, 7]], ()),
        (
            4,
            [[2, 5, 3, 6], [1.5, 0, -2000, 7]],
            ("the last 2 steps of 1 longer sequence are used, as in the model",),
        ),
    ],
)
def test_later_sequences_have_the_steps_of_the_model(write, features, rows, notes):
    raw = read_for_model(write("a.ts", HEADER + ROWS), features)
    assert (raw.inputs.dense.tolist(), raw.notes) == (rows, notes)


@pytest.mark.parametrize(
    "row", ["1,?:2,3:b", "1,2:b", "1,2:3:b", "1,2:3,nan:b", "1,:2,3:b", "(0,1),(1,2):(0,3),(1,4):b"]
)
def test_a_row_without_all_numbers_is_named(write, row):
    path = write("a.ts", f"{HEADER}{ROWS}{row}\n")
    assert read_error(path).startswith(f"{path}:10: expected as many values as in the first row")


@pytest.mark.parametrize("content", ["", "@data\n", "1,2:3\n", "@data\nb\n"])
def test_files_without_sequences(write, content):
    path = write("a.ts", content)
    assert read_error(path) == f"{path}: expected sequences of numbers after a line @data; got none"


def test_a_number_is_expected_where_labels_are_numbers(write):
    assert "a.ts:3: expected" in read_error(write("a.ts", "@targetLabel true\n@data\n1,2:b\n"))
