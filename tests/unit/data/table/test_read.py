import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError
from tests.support.reading import packed, read_for_model

PLAIN = "size,color,y\n1.5,red,a\n2,blue,b\n3,red,a\n"
LATE = "a,b,y\n" + "1,2,0\n2,3,1\n" * 500 + "NA,5,1\n"  # a missing value below many numbers
TABLE = ReadOptions(table=TableOptions())


@pytest.fixture
def read_table(write):
    """Write a file and read it as a training table."""
    return lambda name, content, **options: read_as(
        write(name, content), ReadOptions(**options, table=TableOptions())
    )


def cells(raw):
    """The feature columns of a training table as lists."""
    found = []
    for position, kind in raw.table.kinds.items():
        column = raw.table.table.columns[position]
        if kind == "number":
            found.append(column.values.tolist())
        else:
            found.append([None if code < 0 else column.values[code] for code in column.codes])
    return found


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "\ufeff" + PLAIN),
        ("a.csv", PLAIN.replace("\n", "\r\n")),
        ("a.csv", PLAIN.replace("\n", "\r")),
        ("a.csv", PLAIN[:-1].replace("\n", "\n\n")),
        ("a.csv", PLAIN.replace(",", ", ")),
        ("a.csv", PLAIN.replace(",", ";")),
        ("a.csv", PLAIN.replace(",", ";").replace("1.5", "1,5")),
        ("a.csv", PLAIN.replace(",", "\t")),
        ("a.txt", PLAIN.replace(",", "|")),
        ("a", PLAIN.replace("red", '"red"').replace("size", '"size"').replace("1.5", '"1.5"')),
        ("a.csv.gz", packed("a.csv.gz", PLAIN)),
    ],
)
def test_habits_of_spreadsheets(read_table, name, content):
    raw = read_table(name, content)
    assert cells(raw) == [[1.5, 2, 3], ["red", "blue", "red"]]
    assert (raw.label_names, raw.labels.tolist(), raw.columns.label) == (("a", "b"), [0, 1, 0], "y")


def test_quoted_cells_may_contain_delimiters_quotes_and_line_ends(read_table):
    raw = read_table("a.csv", 'a,b,y\n1,"x, ""y""\nz",u\n2,w,v\n1,w,v\n')
    assert cells(raw) == [[1, 2, 1], ['x, "y"\nz', "w", "w"]]
    assert [raw.locate(row).rpartition(":")[2] for row in (0, 1)] == ["2", "4"]


@pytest.mark.parametrize("word", ["", "NA", "N/A", "nan", "NULL", "None", "-", "?", " NA "])
def test_words_for_missing_values(read_table, word):
    numbers, categories = cells(read_table("a.csv", f"a,b,y\n1,x,u\n{word},{word},v\n2,z,u\n"))
    np.testing.assert_array_equal(numbers, [1, np.nan, 2])
    assert categories == ["x", None, "z"]


def test_values_may_be_missing_below_many_numbers(read_table):
    raw = read_table("b.csv", LATE)
    assert np.isnan(raw.table.table.columns[0].values[-1])
    assert raw.locate(1000).endswith("b.csv:1002")


@pytest.mark.parametrize(
    ("content", "header", "rows"),
    [
        ("39, State-gov, <=50K\n50, ?, >50K\n38, Private, <=50K\n", "auto", 3),
        ("color,y\nred,a\nblue,b\n", "auto", 2),  # no value of the first line occurs below
        ("red,a\nblue,b\nred,b\n", "auto", 3),
        ("color,y\nred,a\nblue,b\n", "no", 3),
    ],
)
def test_which_tables_have_a_header(read_table, content, header, rows):
    raw = read_table("a.csv", content, header=header)
    assert raw.rows == rows and (raw.columns.label is None) == (rows == 3)
    assert ("is treated as a header" in raw.notes[0]) == (rows == 2)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a,b,y\n1,x,u\n2,x,v\n3,u\n", r":4: 2 columns; expected 3 as in the first line"),
        ("a,y\nx,\ny,NA\n", ": expected labels in column 'y'; got none"),
    ],
)
def test_rows_of_another_width_and_tables_without_labels_are_refused(
    read_table, content, complaint
):
    with pytest.raises(DataError, match=rf"a\.csv{complaint}"):
        read_table("a.csv", content)


def test_long_cells_are_read_and_lines_that_are_too_long_for_pyarrow_are_refused(
    read_table, monkeypatch
):
    long, content = "x" * 200_000, "a,b,y\n1,{},u\n2,x,v\n"
    raw = read_table("a.csv", content.format(long))
    assert cells(raw)[1] == [long, "x"] and raw.locate(1).endswith("a.csv:3")
    monkeypatch.setattr("hogbatch.data.table.arrow.text.BLOCK_BYTES", 1 << 16)
    with pytest.raises(DataError, match=r"a\.csv:2: expected lines of up to 65.5 kB; got a longer"):
        read_table("a.csv", content.format(long))


def test_bad_lines_and_rows_without_a_label_are_left_out(read_table):
    content = "a,b,y\n" + "1,x,u\n2,z,v\n" * 20 + "3,u\n4,x,\nmany,x,u\n5,z,v\n"
    raw = read_table("a.csv", content, bad_lines=0.1)
    assert (raw.rows, raw.skipped.total) == (41, 2)
    assert [line.describe("a") for line in raw.skipped.first] == [
        "a:42: 2 columns; expected 3 as in the first line",
        "a:44: column 'a': expected a number; got 'many'",
    ]
    assert raw.locate(40).endswith("a.csv:45")
    assert raw.notes[-1] == "a row without a label (column 'y') is left out"
    with pytest.raises(DataError, match=r"2 of 43 lines .* more than --bad-lines 0\.01 allows"):
        read_table("a.csv", content, bad_lines=0.01)


@pytest.mark.parametrize("name", ['""', "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_data_frame_is_not_a_feature_and_booleans_are_labels(read_table, name):
    raw = read_table("a.csv", f"{name},a,y\n7,x,true\n3,y,false\n9,x,true\n")
    assert raw.table.kinds == {1: "category"} and "the index of a data frame" in raw.notes[-1]
    assert (raw.label_names, raw.labels.tolist()) == ((False, True), [1, 0, 1])


def test_a_column_that_is_constant_in_training_is_not_a_feature(write):
    rows = "".join(f"{n},{n % 7 + 1},0,{n % 2}\n" for n in range(20))
    loaded = load(write("a.csv", "a,b,c,y\n" + rows), options=TABLE, fractions=Fractions(0))
    assert loaded.train.features == 2 and "not used: c (constant)" in loaded.notes[0]
    later = write("b.csv", "a,b,c,y\n" + rows.replace(",0,", ",100,"))
    raw = read_for_model(later, 2, encoding=loaded.table)
    np.testing.assert_array_equal(raw.inputs.dense, loaded.train.inputs.dense)


def test_each_column_has_its_features_beside_those_of_the_others(write):
    content = "a,color,b,y\n" + "1,red,5,0\n,blue,6,1\n3,red,7,1\n" * 10
    loaded = load(write("a.csv", content), options=TABLE, scale="none", fractions=Fractions(0))
    # a, whether it is missing, blue, red, another color, b
    expected = [[1, 0, 0, 1, 0, 5], [0, 1, 1, 0, 0, 6], [3, 0, 0, 1, 0, 7]]
    assert loaded.train.inputs.dense.tolist() == expected * 10


def test_columns_of_all_kinds_come_from_the_cache_as_they_were_stored(old_file, cache, parsed):
    row = "{},{},2024-01-0{},a word,red,{}\n"
    rows = (row.format(n, n % 3 == 0, n % 9 + 1, n % 2 == 0) for n in range(30))
    path = old_file("a.csv", "a,b,day,note,color,y\n" + "".join(rows) + ",,,,,true\n")
    options = replace(TABLE, table=TableOptions(text=("note",)))
    first, second = (load(path, options=options, cache=cache) for _ in range(2))
    assert parsed == [path] and first.encoding.classes == second.encoding.classes == (False, True)
    assert first.fingerprint == second.fingerprint and first.notes == second.notes
    kinds = [column.encoder.kind for column in second.table.columns]
    assert kinds == ["number", "number", "date", "category", "text"]


def test_sparse_rows_with_few_features_are_rows_of_a_table(write):
    path = write("a.csv", "y,a,b,c\n0,1,0,2\n1,0,3,4\n0,5,6,0\n")
    loaded = load(path, options=replace(TABLE, label=("y",)), fractions=Fractions(0))
    later = write("a.svm", "0 1:5 2:6\n1 2:3\n")
    raw = read_for_model(later, 3, encoding=loaded.table, index_base=1)
    expected = read_for_model(write("b.csv", "a,b,c\n5,6,0\n0,3,0\n"), 3, encoding=loaded.table)
    np.testing.assert_array_equal(raw.inputs.dense, expected.inputs.dense)


def test_numbers_beyond_float32_are_refused(write):
    with pytest.raises(DataError, match=r"a\.csv:3: column 'a': expected a finite number within f"):
        load(write("a.csv", "a,y\n1,0\n1.7e308,1\n"), options=TABLE)


def frame():
    return pd.DataFrame(
        {
            "n": [1.5, None, 3.0, 4.0] * 5,
            "whole": [1, 2, 3, 4] * 5,
            "flag": [True, False, True, True] * 5,
            "color": ["red", None, "blue", "red"] * 5,
            "grade": pd.Categorical(["a", "b", "a", "c"] * 5),
            "day": pd.to_datetime(["2013-01-31", "2013-02-01", None, "2014-01-01"] * 5),
            "y": ["u", "v", "u", "v"] * 5,
        }
    )


def save(given, path):
    if path.suffix == ".csv":
        given.to_csv(path, index=False)
    else:
        getattr(given, f"to_{path.suffix[1:]}")(path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "feather", "csv", "parquet folder", "csv folder"])
def test_all_files_give_the_same_features(tmp_path, kind):
    ending, _, folder = kind.partition(" ")
    stored = tmp_path / (folder or f"a.{ending}")
    if folder:
        stored.mkdir()
        for n, part in enumerate((frame()[:8], frame()[8:])):
            save(part, stored / f"{n}.{ending}")
    else:
        save(frame(), stored)
    other = load(save(frame(), tmp_path / "other.parquet"), options=TABLE)
    loaded = load(stored, options=TABLE)
    assert loaded.encoding.classes == ("u", "v")
    numbers = [examples.inputs.dense[:, 2] for examples in (loaded.train, loaded.sets["test"])]
    assert abs(numbers[0].mean()) < 1e-6 < 1e-3 < abs(numbers[1].mean())  # of the training rows
    np.testing.assert_array_equal(loaded.train.inputs.dense, other.train.inputs.dense)
    shuffled = frame()[["day", "color", "n", "grade", "flag", "whole"]]
    later, whole = (
        read_for_model(path, loaded.train.features, encoding=loaded.table)
        for path in (save(shuffled, tmp_path / "later.csv"), stored)
    )
    np.testing.assert_array_equal(later.inputs.dense, whole.inputs.dense)
    assert (later.labels, whole.label_names) == (None, ("u", "v"))


def test_a_folder_has_files_of_one_format_and_hidden_ones_are_ignored(tmp_path):
    folder, hidden = tmp_path / "rows", tmp_path / "rows/.ipynb_checkpoints"
    hidden.mkdir(parents=True)
    save(frame()[8:], hidden / "a.csv")
    save(frame()[:8], folder / "a.parquet").rename(folder / "part-0")
    assert read_as(folder, TABLE).rows == 8
    save(frame()[8:], folder / "b.csv")
    with pytest.raises(DataError, match=r"rows: expected files of one format; got .*part-0$"):
        read_as(folder, TABLE)
    (folder / "part-0").unlink()
    assert read_as(folder, TABLE).rows == 12
    for path in (folder / "b.csv", tmp_path / "c.parquet"):
        save(frame()[:0], path)
        with pytest.raises(DataError, match=r"no rows$"):
            read_as(path, TABLE)


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv"])
def test_all_files_of_a_folder_have_the_columns_of_the_first_one(tmp_path, ending):
    """Found: cells that a Parquet file lacks, read as missing values."""
    folder = tmp_path / "rows"
    folder.mkdir()
    save(frame()[:8], folder / f"a.{ending}")
    save(frame()[8:].drop(columns="n"), folder / f"b.{ending}")
    with pytest.raises(DataError, match=rf"b\.{ending}: expected the columns of .*a\.{ending}"):
        read_as(folder, TABLE)


def test_tables_without_names_are_matched_by_position(write):
    options = ReadOptions(table=TableOptions(), label=("1",), header="no")
    loaded = load(write("a.csv", "x,u,1.5\ny,v,3\n" * 5), options=options, fractions=Fractions(0))
    features, encoding = loaded.train.features, loaded.table
    for content in ("y,v,3\nx,u,1.5\n", "y,3\nx,1.5\n"):  # with the label, and without
        path = write("later.csv", content)
        raw = read_for_model(path, features, encoding=encoding, header="no")
        np.testing.assert_array_equal(raw.inputs.dense, loaded.train.inputs.dense[[1, 0]])
    with pytest.raises(
        DataError, match=r"later\.csv: 4 columns; expected the 3 columns of the tra"
    ):
        read_for_model(write("later.csv", "y,v,3,4\n"), features, encoding=encoding, header="no")


def test_a_mistake_in_a_folder_is_placed_in_its_file(tmp_path):
    for n, cell in enumerate(("1", "2", "three")):
        (tmp_path / f"{n}.csv").write_text(f"a,b,y\n1,x,u\n{cell},z,v\n")
    options = ReadOptions(table=TableOptions(numeric=("a",)))
    with pytest.raises(DataError, match=r"/2\.csv:3: column 'a': expected a number; got 'three'"):
        load(tmp_path, options=options)


def test_later_tables_that_do_not_fit_are_errors_or_bad_lines(tmp_path):
    loaded = load(save(frame(), tmp_path / "a.parquet"), options=TABLE)
    features, encoding = loaded.train.features, loaded.table
    less = save(frame().drop(columns="color"), tmp_path / "less.csv")
    with pytest.raises(DataError, match=r"less\.csv: expected the 6 features .* no column 'color'"):
        read_for_model(less, features, encoding=encoding)
    other = frame().astype({"whole": object})
    other.loc[3, "whole"] = "four"
    word = save(other, tmp_path / "word.csv")
    complaint = r"word\.csv:5: column 'whole': expected a number; got 'four'; correct the row, or l"
    with pytest.raises(DataError, match=complaint):
        read_for_model(word, features, encoding=encoding)
    raw = read_for_model(word, features, encoding=encoding, bad_lines=0.1)
    assert raw.rows == len(other) - 1 == len(raw.labels)
    assert any("word.csv:5: column 'whole'" in message for message in raw.messages)


def test_a_csv_file_is_read_when_the_threads_of_pyarrow_have_released_it(read_table, monkeypatch):
    import pyarrow.csv

    real, ended = pyarrow.csv.read_csv, []

    def held(stream, **options):
        def hold(_):
            time.sleep(0.2)
            ended.append(True)

        table = real(stream, **options)
        threading.Thread(target=hold, args=[stream]).start()
        return table

    monkeypatch.setattr(pyarrow.csv, "read_csv", held)
    read_table("a.csv", PLAIN)
    assert ended


def test_a_column_may_contain_the_weights_of_the_rows(read_table):
    content = "a,w,y\n1,2,u\n5,0,v\n2,0.5,v\n3,7,\n4,1,v\n"  # a row of weight 0, one unlabelled
    raw = read_table("w.csv", content, weight="w")
    assert (raw.rows, raw.weights.tolist(), raw.label_names) == (3, [2, 0.5, 1], ("u", "v"))
    assert [*raw.table.kinds] == [0] and "not used: w (--sample-weight)" in raw.messages[0]
    assert [raw.locate(row).rpartition(":")[2] for row in range(3)] == ["2", "4", "6"]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("-1", r"w\.csv:3: column 'w': expected a weight of at least 0; got -1"),
        ("", r"w\.csv:3: column 'w': expected a weight of at least 0; got a missing value"),
        ("x", r"w\.csv:3: column 'w': expected a number; got 'x', the row's weight"),
        ("0", r"w\.csv: column 'w': expected a weight above 0; got only zeros"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(read_table, weight, message):
    with pytest.raises(DataError, match=message):
        read_table("w.csv", f"a,w,y\n1,0,u\n5,{weight},v\n2,0,v\n", weight="w")
