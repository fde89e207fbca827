"""Files that do not belong together, or cannot be read as numbers, are named."""

import os
import re

import numpy as np
import pandas as pd
import pytest

from hogbatch.cluster.divided.decide import decide
from hogbatch.cluster.divided.reading import read_part, survey
from hogbatch.data.cache import DataCache
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.errors import DataError, UsageError
from tests.unit.cluster.divided.folders import divided, pieces_of, surveys_of


@pytest.fixture
def write_files(tmp_path):
    """Write files into a folder, which is returned: text, or arrays of an NPZ file."""

    def write_files(**files):
        for name, content in files.items():
            stem, _, ending = name.rpartition("_")
            path = tmp_path / f"{stem}.{ending}"
            if ending == "npz":
                np.savez(path, **{each: np.array(values) for each, values in content.items()})
            else:
                path.write_text(content)
        return tmp_path

    return write_files


ONE_ROW = {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 3], "y": [1]}
TEXT = {"X": np.eye(2), "y": ["u", "v"]}
NUMBERS = {"X": np.eye(2), "y": [1, 0]}


NAMED, PLAIN, SPARSE = "a,b,y\n1,2,3\n", "1,2,3\n", "1 1:1\n2 2:1\n"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (
            {"a_csv": NAMED, "b_csv": "a,c,y\n1,2,3\n"},
            r"b\.csv: feature 1 .* 'c', but 'b' in .*a.csv",
        ),
        (
            {"a_csv": NAMED, "b_csv": "a,b,z\n1,2,3\n"},
            r"b\.csv: the label is column 2 .'z'., but .*y",
        ),
        ({"a_csv": NAMED, "b_csv": PLAIN}, r"b\.csv: no header, but .*a.csv has one; use the same"),
        ({"a_csv": PLAIN, "b_csv": NAMED}, r"b\.csv: a header, but .*a.csv has none; use the same"),
        (
            {"a_csv": PLAIN, "b_csv": "1,2,3,4\n"},
            r"b\.csv: expected 2 features, as in .*a.csv; got 3",
        ),
        (
            {"a_csv": PLAIN, "b_svm": SPARSE},
            r"b\.svm: expected dense rows, as in .*; got sparse rows",
        ),
        (
            {"a_svm": SPARSE, "b_svm": "1 0:1\n"},
            r"b\.svm: features are counted from 0, but from 1 in .*a.svm, .*give --index-base",
        ),
        ({"a_svm": SPARSE, "b_npz": ONE_ROW}, r"b\.npz: expected the format of .*a.svm"),
        (
            {"a_npz": TEXT, "b_npz": NUMBERS},
            r"b\.npz: expected labels .*; got numbers .* text in .*a",
        ),
        ({"a_svm": "1 1:1\n", "b_svm": "1 2:1\n"}, r"^[^:]*: every label is 1"),
        (
            {"a_svm": "1.5 1:1\n2 1:2\n", "b_svm": "1,2 1:1\n"},
            r"a\.svm: row 0: .*need whole-number",
        ),
        ({"a_csv": "a,b,y\n1,red,3\n2,blue,4\n"}, r"a\.csv.*\(--data-copies\) must be num.*conve"),
        ({"a_csv": "a,b,y\n1,,3\n2,5,4\n"}, r"a\.csv.*\(--data-copies\) must be numbers .*convert"),
        ({"a_csv": "1,2,3\n4,5,6\n7,8\n"}, r"a\.csv:3:(?!.*--data-copies)"),
        ({"a_npz": {"X": np.eye(2)}}, r"a\.npz has no labels"),
        ({"a_svm": "1\n2\n"}, "no row has a feature"),
    ],
)
def test_a_file_that_does_not_fit_is_named(write_files, files, complaint):
    with pytest.raises(DataError, match=complaint):
        divided(write_files(**files))


def test_labels_that_do_not_fit_the_loss_are_located(write_files):
    folder = write_files(a_csv="1,2,0\n1,3,1\n", b_csv="1,2,2\n1,3,1.5\n")
    with pytest.raises(DataError, match=r"b\.csv: row 1: loss softmax needs whole-number labels"):
        divided(folder, loss="softmax")
    for path in folder.iterdir():
        path.unlink()
    write_files(a_svm=SPARSE, b_svm="1,2 1:1\n")
    with pytest.raises(DataError, match=r"b\.svm: loss squared needs one label per row; got lists"):
        divided(folder, loss="squared")


@pytest.mark.parametrize("column", [["red", "blue"], [1, None], ["2024-01-01", "2024-01-02"]])
def test_a_parquet_file_with_text_is_refused_with_advice(tmp_path, column):
    pd.DataFrame({"a": [1, 2], "b": column, "y": [0, 1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet.*'b'.*--data-copies\) must be numbers"):
        divided(tmp_path)


def test_settings_that_do_not_fit_are_refused(write_files):
    folder = write_files(a_csv="1,2,3\n4,5,6\n")
    with pytest.raises(UsageError, match="--scale quantile needs a table:"):
        divided(folder, scale="quantile")


def test_a_changed_file_is_noticed(write_files):
    folder = write_files(a_csv="1,2,3\n4,5,6\n", b_csv="1,2,3\n7,8,9\n")
    data = divided(folder)
    write_files(b_csv="1,2,3\n7,8,8\n")
    assert read_part(data.parts[0], data.reading, ReadOptions())["train"].rows == 2
    with pytest.raises(DataError, match=re.escape(f"{folder}/b.csv has changed since this run")):
        pieces_of(data)


def test_malformed_lines_are_skipped_and_counted(write_files):
    folder = write_files(a_csv="1,2,0\nx,3,1\n2,2,1\n", b_csv="1,2,1\n2,3\n1,2,0\n")
    data = divided(folder, ReadOptions(bad_lines=0.5))
    assert (data.skipped, data.train_sizes.rows) == (2, 4)
    assert sum("1 of 3 lines skipped" in note for note in data.notes) == 2
    assert [piece["train"].rows for piece in pieces_of(data, ReadOptions(bad_lines=0.5))] == [2, 2]


def test_a_note_about_all_files_is_shown_once(write_files):
    content = "Unnamed: 0,a,b,y\n0,1,2,0\n1,5,4,1\n"
    folder = write_files(a_csv=content, b_csv=content, c_csv=content)
    notes = [note for note in divided(folder).notes if "data frame" in note]
    assert notes == [
        f"{folder}/a.csv and 2 more: column 0 is the index of a data frame and is left out"
    ]


def test_surveys_may_come_in_any_order(write_files):
    folder = write_files(a_csv="1,2,0\n", b_csv="4,5,1\n", c_csv="6,5,1\n")
    surveys, settings = surveys_of(folder), {"fractions": Fractions(0), "seed": 0}
    data = decide(folder, surveys[::-1], **settings)
    assert [part.number for part in data.parts] == [0, 1, 2]
    assert data.fingerprint == decide(folder, surveys, **settings).fingerprint


def test_a_part_is_parsed_once_for_its_survey_and_for_training(write_files):
    folder, messages = write_files(a_svm="1 1:1\n-1 2:1\n"), []
    path = folder / "a.svm"
    os.utime(path, (1_000_000_000, 1_000_000_000))  # a file of the last seconds is not cached
    cache = DataCache(folder / "cache", messages.append, min_parse_s=0.0)
    found = survey(path, 0, ReadOptions(), fractions=Fractions(0), seed=0, cache=cache)
    data = decide(folder, [found], fractions=Fractions(0), seed=0)
    messages.clear()
    assert read_part(data.parts[0], data.reading, ReadOptions(), cache)["train"].rows == 2
    assert len(messages) == 1 and "read from the cache" in messages[0]
