"""A separate test file, which every server reads."""

import pytest

from hogbatch.cluster.divided.decide import with_held_out
from hogbatch.cluster.divided.reading import read_held_out
from hogbatch.data.load import load
from hogbatch.data.raw import ReadOptions
from hogbatch.errors import DataError
from tests.unit.cluster.divided.folders import contents, divided, pieces_of


def held_out(folder, test, options=ReadOptions(), **settings):  # noqa: B008 (frozen)
    """Divided data with a test file."""
    return with_held_out(divided(folder, options, **settings), "test", test, options, cache=None)


@pytest.mark.parametrize(
    ("parts", "name", "test"),
    [
        (("a,b,y\n1,2,0\n3,4,1\n", "a,b,y\n5,9,0\n"), "test.csv", "y,b,a\n1,7,8\n0,5,6\n"),
        (("1,2,0\n3,4,1\n", "5,9,0\n"), "test.csv", "1,7,1\n0,5,0\n"),
        (("1,2,0\n3,4,1\n", "5,9,0\n"), "test.svm", "1 1:7\n0 1:5 2:3\n"),
        (("0 0:1\n1 2:5\n", "1 0:1\n"), "test.svm", "1 1:7\n0 0:3 2:2 9:1\n"),
        (("0,2 0:1\n1 2:5\n", "1 0:1\n"), "test.svm", "1 1:7\n0 0:3 2:2\n"),
    ],
)
def test_test_rows_are_read_as_by_load(tmp_path, parts, name, test):
    folder, whole = tmp_path / "parts", tmp_path / "all.data"
    folder.mkdir()
    for number, content in enumerate(parts):
        (folder / f"{number}").write_text(content)
    headed = parts[0].startswith("a")
    whole.write_text(parts[0] + (parts[1].partition("\n")[2] if headed else parts[1]))
    (tmp_path / name).write_text(test)
    data, expected = held_out(folder, tmp_path / name), load(whole, files={"test": tmp_path / name})
    found = pieces_of(data)[-1]
    assert found.keys() == {"test"}
    values, labels = contents(found["test"])
    known, known_labels = contents(expected.sets["test"])
    assert values == pytest.approx(known)
    assert labels == known_labels
    assert data.set_sizes["test"] == found["test"].sizes == expected.set_sizes["test"]
    assert data.skipped == 0
    ignored = [note for note in expected.notes if "are ignored" in note]
    assert [note for note in data.notes if "are ignored" in note] == ignored


@pytest.fixture
def folder(tmp_path):
    """A folder of two files of numbers."""
    (tmp_path / "parts").mkdir()
    for name in ("a", "b"):
        (tmp_path / "parts" / f"{name}.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    return tmp_path / "parts"


def test_a_changed_test_file_is_noticed(tmp_path, folder):
    test = tmp_path / "test.csv"
    test.write_text("a,b,y\n1,2,0\n")
    data = held_out(folder, test)
    assert read_held_out(*data.held_out, data.reading, ReadOptions())["test"].rows == 1
    test.write_text("a,b,y\n1,3,0\n")
    with pytest.raises(DataError, match=r"test\.csv has changed since this run read it first"):
        pieces_of(data)


def test_the_fingerprint_depends_on_the_test_file(tmp_path, folder):
    found = {divided(folder).fingerprint}
    for number, content in enumerate(("a,b,y\n1,2,0\n", "a,b,y\n1,3,0\n")):
        test = tmp_path / f"{number}.csv"
        test.write_text(content)
        found.add(held_out(folder, test).fingerprint)
    assert len(found) == 3 and all(len(each) == 32 for each in found)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a,b,y\n1,2,5\n", r"test.csv:2: label 5 does not occur in the training"),
        ("a,b\n1,2\n", "has no labels: expected the label column 'y'"),
    ],
)
def test_a_test_file_without_the_labels_of_training_is_refused(
    tmp_path, folder, content, complaint
):
    (tmp_path / "test.csv").write_text(content)
    with pytest.raises(DataError, match=complaint):
        held_out(folder, tmp_path / "test.csv")


def test_skipped_lines_of_the_test_file_are_counted(tmp_path, folder):
    (tmp_path / "test.csv").write_text("a,b,y\n1,2,0\nx,y,z\n")
    data = held_out(folder, tmp_path / "test.csv", ReadOptions(bad_lines=0.5))
    assert (data.skipped, data.set_sizes["test"].rows) == (1, 1)
    assert any("test.csv: 1 of 2 lines skipped" in note for note in data.notes)
