import gzip
import threading
import time

import numpy as np
import pandas as pd
import pytest

from hogbatch.data.load import inputs_for, load
from hogbatch.data.raw import ReadOptions
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError, UsageError

PLAIN = "size,color,y\n1.5,red,a\n2,blue,b\n3,red,a\n"


def cells(raw):
    """The feature columns of a training table as lists; the label names and labels."""
    inspected = raw.table
    found = []
    for position in inspected.kinds:
        column = inspected.table.columns[position]
        if inspected.kinds[position] == "number":
            found.append(column.values.tolist())
        else:
            found.append([None if code < 0 else column.values[code] for code in column.codes])
    return found


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", PLAIN),
        ("a.csv", "\ufeff" + PLAIN),
        ("a.csv", PLAIN.replace("\n", "\r\n")),
        ("a.csv", PLAIN.replace("\n", "\r")),
        ("a.csv", PLAIN[:-1]),
        ("a.csv", PLAIN.replace("\n", "\n\n")),
        ("a.csv", PLAIN.replace(",", ", ")),
        ("a.csv", PLAIN.replace(",", ";")),
        ("a.csv", PLAIN.replace(",", ";").replace("1.5", "1,5")),
        ("a.csv", PLAIN.replace(",", "\t")),
        ("a.tsv", PLAIN.replace(",", "\t")),
        ("a.txt", PLAIN.replace(",", "|")),
        ("a.csv", PLAIN.replace("red", '"red"').replace("size", '"size"')),
        ("a.csv", PLAIN.replace("1.5", '"1.5"')),
        ("a.csv.gz", gzip.compress(PLAIN.encode(), mtime=0)),  # the same test name in every process
        ("a", PLAIN),
    ],
)
def test_habits_of_spreadsheets(read_table, name, content):
    raw = read_table(name, content)
    assert cells(raw) == [[1.5, 2, 3], ["red", "blue", "red"]]
    assert raw.label_names == ("a", "b")
    assert raw.labels.tolist() == [0, 1, 0]
    assert raw.columns.label == "y"


def test_the_column_of_an_index_has_no_name_in_a_header(read_table):
    raw = read_table("a.csv", '"","sex","y"\n"1","m","yes"\n"2","f","no"\n"3","m","no"\n')
    assert raw.rows == 3
    assert raw.label_names == ("no", "yes")
    assert "index of a data frame" in raw.notes[0] + raw.notes[-1]


def test_quoted_cells_may_contain_delimiters_quotes_and_line_ends(read_table):
    raw = read_table("a.csv", 'a,b,y\n1,"x, ""y""\nz",u\n2,w,v\n1,w,v\n')
    assert cells(raw) == [[1, 2, 1], ['x, "y"\nz', "w", "w"]]
    assert raw.locate(0).endswith("a.csv:2")
    assert raw.locate(1).endswith("a.csv:4")


@pytest.mark.parametrize("word", ["", "NA", "N/A", "nan", "NULL", "None", "-", "?", " NA "])
def test_words_for_missing_values(read_table, word):
    raw = read_table("a.csv", f"a,b,y\n1,x,u\n{word},{word},v\n2,z,u\n")
    numbers, categories = cells(raw)
    np.testing.assert_array_equal(numbers, [1, np.nan, 2])
    assert categories == ["x", None, "z"]


def test_missing_values_below_many_rows_of_numbers(read_table):
    raw = read_table("a.csv", "a,b,y\n" + "1,2,0\n2,3,1\n" * 500 + "NA,5,1\n")
    assert np.isnan(raw.table.table.columns[0].values[-1])
    assert raw.locate(1000).endswith("a.csv:1002")


def test_numbers_alone_are_read_as_before(read_table):
    raw = read_table("a.csv", "a,b,y\n1,2,0\n2,3,1\n")
    assert raw.table is None
    assert raw.inputs.dense.tolist() == [[1, 2], [2, 3]]


def test_a_decimal_comma_needs_semicolons(read_table):
    raw = read_table("a.csv", 'a,y\n"1,5",u\n"2,5",v\n')
    assert cells(raw) == [["1,5", "2,5"]]


def test_a_table_without_a_header(read_table):
    raw = read_table("a.csv", "39, State-gov, <=50K\n50, ?, >50K\n38, Private, <=50K\n")
    assert cells(raw) == [[39, 50, 38], ["State-gov", None, "Private"]]
    assert raw.columns.label is None


def test_a_table_of_text_has_a_header_if_no_value_of_it_occurs_below(read_table):
    assert read_table("a.csv", "color,y\nred,a\nblue,b\n").rows == 2
    assert "is treated as a header" in read_table("b.csv", "color,y\nred,a\nblue,b\n").notes[0]
    assert read_table("c.csv", "red,a\nblue,b\nred,b\n").rows == 3
    assert read_table("d.csv", "color,y\nred,a\nblue,b\n", header="no").rows == 3


def test_true_and_false_are_labels(read_table):
    raw = read_table("a.csv", "a,y\nu,true\nv,false\nw,true\n")
    assert (raw.label_names, raw.labels.tolist()) == ((False, True), [1, 0, 1])


def test_a_row_of_another_width_is_named(read_table):
    with pytest.raises(DataError, match=r"a\.csv:4: 2 columns; expected 3 as in the first line"):
        read_table("a.csv", "a,b,y\n1,x,u\n2,x,v\n3,u\n")


def test_bad_lines_are_left_out(read_table):
    content = "a,b,y\n" + "1,x,u\n2,z,v\n" * 20 + "3,u\n4,x,NA\nmany,x,u\n5,z,v\n"
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


def test_rows_without_a_label_are_left_out(read_table):
    raw = read_table("a.csv", "a,y\nx,1\ny,\nx,2\nz,NA\n")
    assert raw.labels.tolist() == [1, 2] and raw.skipped.total == 0
    assert raw.notes[-1] == "2 rows without a label (column 'y') are left out"
    assert raw.locate(1).endswith("a.csv:4")


def test_a_table_without_any_label_is_refused(read_table):
    with pytest.raises(DataError, match=r"a\.csv: expected labels in column 'y'; got none"):
        read_table("a.csv", "a,y\nx,\ny,NA\n")


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_data_frame_is_not_a_feature(read_table, name):
    raw = read_table("a.csv", f"{name},a,y\n7,x,1\n3,y,2\n9,x,2\n")
    assert raw.table.kinds == {1: "category"}
    assert "the index of a data frame" in raw.notes[-1]


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


@pytest.fixture(params=["parquet", "feather", "folder", "csv", "csv folder"])
def stored(request, tmp_path):
    """The frame in a file, or in a folder of two files."""
    kind, given = request.param, frame()
    if "folder" not in kind:
        path = tmp_path / f"a.{kind}"
        given.to_csv(path, index=False) if kind == "csv" else getattr(given, f"to_{kind}")(path)
        return path
    folder = tmp_path / "parts"
    folder.mkdir()
    for n, part in enumerate((given[:8], given[8:])):
        if kind == "folder":
            part.to_parquet(folder / f"{n}.parquet")
        else:
            part.to_csv(folder / f"{n}.csv", index=False)
    return folder


def test_all_files_give_the_same_features(stored, tmp_path):
    frame().to_parquet(tmp_path / "other.parquet")
    options = ReadOptions(table=TableOptions())
    loaded, other = (load(path, options=options) for path in (stored, tmp_path / "other.parquet"))
    assert loaded.encoding.classes == ("u", "v")
    if loaded.fingerprint != other.fingerprint:  # files of parts may number categories otherwise
        np.testing.assert_array_equal(loaded.train.inputs.dense, other.train.inputs.dense)
    shuffled = frame()[["day", "color", "n", "grade", "flag", "whole"]]
    shuffled.to_csv(tmp_path / "later.csv", index=False)
    later = inputs_for(tmp_path / "later.csv", loaded.train.features, encoding=loaded.table)
    whole = inputs_for(stored, loaded.train.features, encoding=loaded.table)
    np.testing.assert_array_equal(later.inputs.dense, whole.inputs.dense)
    assert later.labels is None
    assert whole.label_names == ("u", "v")


def test_a_later_table_without_a_column_is_an_error(stored, tmp_path):
    loaded = load(stored, options=ReadOptions(table=TableOptions()))
    frame().drop(columns="color").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(DataError, match=r"less\.csv: expected the 6 features .* no column 'color'"):
        inputs_for(tmp_path / "less.csv", loaded.train.features, encoding=loaded.table)


def test_a_later_table_with_a_word_for_a_number_is_an_error(stored, tmp_path):
    loaded = load(stored, options=ReadOptions(table=TableOptions()))
    other = frame().astype({"whole": object})
    other.loc[3, "whole"] = "four"
    other.to_csv(tmp_path / "word.csv", index=False)
    with pytest.raises(
        DataError, match=r"word\.csv:5: column 'whole': expected a number; got 'four'"
    ):
        inputs_for(tmp_path / "word.csv", loaded.train.features, encoding=loaded.table)
    with pytest.raises(DataError, match="'four'; correct the row, or leave the row out"):
        inputs_for(tmp_path / "word.csv", loaded.train.features, encoding=loaded.table)
    raw = inputs_for(
        tmp_path / "word.csv", loaded.train.features, encoding=loaded.table, bad_lines=0.1
    )
    assert raw.rows == len(other) - 1 == len(raw.labels)
    assert any("word.csv:5: column 'whole'" in message for message in raw.messages)


def test_the_test_rows_do_not_change_the_encoding(write):
    rows = [f"{n},{'abc'[n % 3]},{n % 2}\n" for n in range(100)]
    first, other = (
        load(write(name, "x,c,y\n" + "".join(content)), options=ReadOptions(table=TableOptions()))
        for name, content in (("a.csv", rows), ("b.csv", rows))
    )
    np.testing.assert_allclose(first.train.inputs.dense[:, 0].mean(), 0, atol=1e-6)
    assert abs(first.test.inputs.dense[:, 0].mean()) > 1e-3
    assert first.fingerprint == other.fingerprint


def test_without_pyarrow_the_message_says_how_to_install_it(read_table, monkeypatch):
    import builtins
    import sys

    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **keywords)

    for name in [name for name in sys.modules if name.startswith("hogbatch.data.table.arrow")]:
        monkeypatch.delitem(sys.modules, name)
    import hogbatch.data.table

    monkeypatch.delattr(hogbatch.data.table, "arrow", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    install = r"pip install 'hogbatch\[arrow\]'$"
    with pytest.raises(UsageError, match=install):
        read_table("a.csv", PLAIN)
    late = "a,b,y\n" + "1,2,0\n2,3,1\n" * 500 + "NA,5,1\n"
    with pytest.raises(DataError, match=r"a\.csv:1002:1: .* got 'NA'; .*" + install):
        read_table("a.csv", late)


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
