"""Files that do not belong together, or cannot be read as numbers, are named."""

import re

import numpy as np
import pandas as pd
import pytest

from hogbatch.cluster.divided.decide import decide, parts_to_survey_again
from hogbatch.cluster.divided.reading import read_part
from hogbatch.cluster.divided.survey import survey
from hogbatch.data.raw import ReadOptions
from hogbatch.errors import DataError, UsageError
from tests.unit.cluster.divided.folders import divided, pieces_of, surveys_of


@pytest.fixture
def write_files(tmp_path):
    """Write files into a folder, which is returned."""

    def write_files(**files):
        for name, content in files.items():
            stem, _, ending = name.rpartition("_")
            (tmp_path / f"{stem}.{ending}").write_text(content)
        return tmp_path

    return write_files


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        ("a,b,y\n1,2,3\n", "a,c,y\n1,2,3\n", "feature 1 .from 0. is 'c', but 'b' in .*a.csv; exp"),
        ("a,b,y\n1,2,3\n", "a,b,z\n1,2,3\n", "the label is column 2 .'z'., but column 2 .'y'. in"),
        ("a,b,y\n1,2,3\n", "1,2,3\n", "no header, but .*a.csv has one; use the same in all files"),
        ("1,2,3\n", "a,b,y\n1,2,3\n", "a header, but .*a.csv has none; use the same"),
        ("1,2,3\n", "1,2,3,4\n", "expected 2 features, as in .*a.csv; got 3"),
    ],
)
def test_a_file_with_other_columns_is_named(write_files, first, second, complaint):
    with pytest.raises(DataError, match=rf"b\.csv: {complaint}"):
        divided(write_files(a_csv=first, b_csv=second))


def test_all_files_have_dense_or_all_have_sparse_rows(write_files):
    folder = write_files(a_csv="1,2,3\n2,3,4\n", b_svm="1 1:1\n2 2:1\n")
    with pytest.raises(DataError, match=r"b\.svm: expected dense rows, as in .*; got sparse rows"):
        divided(folder)


def test_all_sparse_files_count_features_in_the_same_way(write_files):
    folder = write_files(a_svm="1 1:1\n2 2:1\n")
    rows = {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 3], "y": [1]}
    np.savez(folder / "b.npz", **{name: np.array(values) for name, values in rows.items()})
    with pytest.raises(DataError, match=r"b\.npz: expected the format of .*a.svm"):
        divided(folder)


def test_labels_of_all_files_have_one_type(write_files):
    folder = write_files()
    np.savez(folder / "a.npz", X=np.eye(2), y=np.array(["u", "v"]))
    np.savez(folder / "b.npz", X=np.eye(2), y=np.array([1, 0]))
    with pytest.raises(DataError, match=r"b\.npz: expected labels .*; got numbers .* text in .*a"):
        divided(folder)


def test_a_folder_is_named_if_all_labels_are_equal(write_files):
    with pytest.raises(DataError) as raised:
        divided(folder := write_files(a_svm="1 1:1\n", b_svm="1 2:1\n"))
    assert str(raised.value).startswith(f"{folder}: every label is 1")


def test_a_label_that_does_not_fit_the_loss_is_located(write_files):
    folder = write_files(a_csv="1,2,0\n1,3,1\n", b_csv="1,2,2\n1,3,1.5\n")
    with pytest.raises(DataError, match=r"b\.csv: row 1: loss softmax needs whole-number labels"):
        divided(folder, loss="softmax")


def test_lists_of_labels_do_not_fit_a_loss_for_numbers(write_files):
    folder = write_files(a_svm="1 1:1\n2 1:2\n", b_svm="1,2 1:1\n")
    with pytest.raises(DataError, match=r"b\.svm: loss squared needs one label per row; got lists"):
        divided(folder, loss="squared")


def test_numbers_that_are_not_labels_do_not_fit_lists(write_files):
    folder = write_files(a_svm="1.5 1:1\n2 1:2\n", b_svm="1,2 1:1\n")
    with pytest.raises(DataError, match=r"a\.svm: row 0: multi-label losses need whole-number"):
        divided(folder)


@pytest.mark.parametrize(
    "content",
    [
        "a,b,y\n1,red,3\n2,blue,4\n",
        "a,b,y\n1,,3\n2,5,4\n",
        "a;b;y\n1;2;3\n",
    ],
)
def test_a_csv_file_with_text_is_refused_with_advice(write_files, content):
    with pytest.raises(DataError, match=r"a\.csv.*\(--data-copies\) must be numbers .*convert"):
        divided(write_files(a_csv=content))


@pytest.mark.parametrize("column", [["red", "blue"], [1, None], ["2024-01-01", "2024-01-02"]])
def test_a_parquet_file_with_text_is_refused_with_advice(tmp_path, column):
    pd.DataFrame({"a": [1, 2], "b": column, "y": [0, 1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet.*'b'.*--data-copies\) must be numbers"):
        divided(tmp_path)


def test_a_malformed_line_is_reported_as_in_one_file(write_files):
    with pytest.raises(DataError) as raised:
        divided(write_files(a_csv="1,2,3\n4,5,6\n7,8\n"))
    assert "a.csv:3:" in str(raised.value) and "--data-copies" not in str(raised.value)


def test_a_file_without_labels_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2))
    with pytest.raises(DataError, match=r"a\.npz has no labels"):
        divided(tmp_path)


def test_rows_without_features_are_refused(write_files):
    with pytest.raises(DataError, match="no row has a feature"):
        divided(write_files(a_svm="1\n2\n"))


def test_a_scale_that_needs_a_table_is_refused(write_files):
    with pytest.raises(UsageError, match="--scale quantile needs a table:"):
        divided(write_files(a_csv="1,2,3\n4,5,6\n"), scale="quantile")


def test_a_test_fraction_beyond_1_is_refused(write_files):
    with pytest.raises(UsageError, match="test fraction must be at least 0 and below 1; got 1"):
        survey(write_files(a_csv="1,2,3\n") / "a.csv", 0, ReadOptions(), test_fraction=1.0, seed=0)


def test_a_changed_file_is_noticed(write_files):
    folder = write_files(a_csv="1,2,3\n4,5,6\n", b_csv="1,2,3\n7,8,9\n")
    data = divided(folder)
    write_files(b_csv="1,2,3\n7,8,8\n")
    assert read_part(data.parts[0], data.reading).train.rows == 2
    with pytest.raises(DataError, match=re.escape(f"{folder}/b.csv has changed since this run")):
        pieces_of(data)


def test_malformed_lines_are_skipped_and_counted(write_files):
    folder = write_files(a_csv="1,2,0\nx,3,1\n2,2,1\n", b_csv="1,2,1\n2,3\n1,2,0\n")
    data = divided(folder, ReadOptions(bad_lines=0.5))
    assert (data.skipped, data.train_sizes.rows) == (2, 4)
    assert sum("1 of 3 lines skipped" in note for note in data.notes) == 2
    assert [piece.train.rows for piece in pieces_of(data)] == [2, 2]


def test_a_note_about_all_files_is_shown_once(write_files):
    content = "Unnamed: 0,a,b,y\n0,1,2,0\n1,5,4,1\n"
    folder = write_files(a_csv=content, b_csv=content, c_csv=content)
    notes = [note for note in divided(folder).notes if "data frame" in note]
    assert notes == [
        f"{folder}/a.csv and 2 more: column 0 is the index of a data frame and is left out"
    ]


def test_only_files_counted_from_1_are_surveyed_again(write_files):
    folder = write_files(a_svm="1 1:1\n", b_svm="1 0:1\n", c_svm="1 2:1\n")
    first = [
        survey(folder / f"{name}.svm", number, ReadOptions(), test_fraction=0, seed=0)
        for number, name in enumerate("abc")
    ]
    assert parts_to_survey_again(first) == (0, 2)
    assert parts_to_survey_again(surveys_of(folder)) == ()
    assert parts_to_survey_again([first[0], first[2]]) == ()


def test_surveys_may_come_in_any_order(write_files):
    folder = write_files(a_csv="1,2,0\n", b_csv="4,5,1\n", c_csv="6,5,1\n")
    surveys, settings = surveys_of(folder), {"test_fraction": 0.0, "seed": 0}
    data = decide(folder, surveys[::-1], ReadOptions(), **settings)
    assert [part.number for part in data.parts] == [0, 1, 2]
    assert data.fingerprint == decide(folder, surveys, ReadOptions(), **settings).fingerprint


def test_a_part_is_parsed_once_for_its_survey_and_for_training(tmp_path, cache, old_file, parsed):
    path = old_file("a.svm", "1 1:1\n-1 2:1\n")
    found = survey(path, 0, ReadOptions(), test_fraction=0, seed=0, cache=cache)
    data = decide(tmp_path, [found], ReadOptions(), test_fraction=0, seed=0)
    assert read_part(data.parts[0], data.reading, cache).train.rows == 2
    assert parsed == [path]
