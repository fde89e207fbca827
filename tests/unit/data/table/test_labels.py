import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow
import pytest

from hogbatch.data.load import load, prepare
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.given import encode, training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError
from tests.support.reading import read_for_model

TABLE = ReadOptions(table=TableOptions())
ROWS = 24
CONTAINERS = ["csv", "tsv", "parquet", "feather", "frame"]


def read(tmp_path, labels, container):
    """A training table with these labels, repeated, in a container."""
    cells = pd.Series(list(labels) * (ROWS // len(labels)), dtype=getattr(labels, "dtype", None))
    frame = pd.DataFrame({"a": np.arange(5.0, 5 + len(cells)) ** 2, "y": cells})
    if container == "frame":
        return training_set(frame[["a"]], frame["y"], None, TableOptions())
    path = tmp_path / f"a.{container}"
    if container in ("csv", "tsv"):
        frame.to_csv(path, index=False, sep="," if container == "csv" else "\t")
    else:
        getattr(frame, f"to_{container}")(path)
    return read_as(path, TABLE)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([2, 0, 1], (0, 1, 2)),
        (pd.array([3, -1], "int8"), (-1, 3)),
        (pd.array([2, 0, 1], "Int64"), (0, 1, 2)),
        (pd.array([2, 0], "int32[pyarrow]"), (0, 2)),
        ([0.5, 1.5], (0.5, 1.5)),
        ([0.0, 1.0, 2.0], (0.0, 1.0, 2.0)),
        ([True, False], (False, True)),
        (pd.array([True, False], "boolean"), (False, True)),
        (["b", "a"], ("a", "b")),
        (pd.array(["b", "a"], "string"), ("a", "b")),
        (pd.Categorical([2, 1]), (1, 2)),
        (["5%", "10%", "20%"], ("10%", "20%", "5%")),
        ([Decimal("0.5"), Decimal("1.5")], (0.5, 1.5)),
    ],
)
def test_classes_have_the_type_of_the_labels(tmp_path, labels, classes, container):
    found = prepare(read(tmp_path, labels, container), loss="auto").encoding.classes
    assert found == classes and list(map(type, found)) == list(map(type, classes))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    "labels", [["none", "mild", "severe"], ["+", "-"], ["NA", "EU", "AS"], ["?", "!", "."]]
)
def test_words_for_missing_values_are_labels_among_other_words(tmp_path, labels, container):
    raw = read(tmp_path, labels, container)
    loaded = prepare(raw)
    assert loaded.encoding.classes == tuple(sorted(labels)) and raw.rows == ROWS
    if container == "frame":
        return
    doubtful = next(label for label in labels if label in ("none", "-", "NA", "?"))
    assert f"'{doubtful}' ({ROWS // len(labels)} rows)" in raw.notes[-1]
    later = tmp_path / "later.csv"
    later.write_text(f"y,a\n{labels[0]},1\n,2\n{labels[1]},3\nnull,4\n")
    again = read_for_model(later, loaded.train.features, encoding=loaded.table)
    assert [again.label_names[int(n)] for n in again.labels] == labels[:2]


def test_cells_that_programs_leave_empty_have_no_label(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\n" + "5,u\n1,v\n3,\n4,NaN\n2,<NA>\n8,#N/A\n9,NULL\n" * 5)
    raw = read_as(path, TABLE)
    assert (raw.rows, raw.label_names) == (10, ("u", "v"))
    path.write_text("a,y\n" + "5,7\n1,8\n3,none\n4,-\n" * 5)  # words among numbers
    raw = read_as(path, TABLE)
    assert (raw.rows, sorted(set(raw.labels.tolist())), raw.labels.dtype) == (10, [7, 8], np.int64)


def test_words_that_are_no_labels_in_training_are_missing_later(tmp_path):
    loaded = prepare(read(tmp_path, ["u", "v"], "csv"))
    later = tmp_path / "later.csv"
    later.write_text("a,y\n1,u\n2,none\n3,v\n")
    raw = read_for_model(later, loaded.train.features, encoding=loaded.table)
    assert (raw.rows, raw.label_names) == (2, ("u", "v"))
    assert "a row without a label" in raw.notes[0]


@pytest.mark.parametrize("save", ["to_parquet", "to_feather", "to_csv"])
@pytest.mark.parametrize("name", [None, "key", "day"])
def test_the_index_of_a_data_frame_is_no_label_and_no_feature(tmp_path, save, name):
    frame = pd.DataFrame({"a": np.arange(30.0) ** 2, "b": ["u", "v", "w"] * 10})
    frame = frame.assign(y=[0, 1] * 15)[frame.a % 3 > 0]
    if name == "day":
        frame.index = pd.date_range("2020-01-01", periods=len(frame), name="day")
    elif name:
        frame.index = pd.Index([f"k{n % 4}" for n in range(len(frame))], name=name)
    path = tmp_path / "a"
    if save == "to_feather":  # as pandas writes Parquet
        table = pyarrow.Table.from_pandas(frame)
        with pyarrow.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        getattr(frame, save)(path)
    raw = read_as(path, TABLE)
    assert raw.columns.label == "y" and raw.labels.tolist() == frame.y.tolist()
    if save != "to_csv" or name is None:  # a column with a name, in text
        names = [raw.table.table.names[n] for n in raw.table.kinds]
        assert names == ["a", "b"] and "the index of a data frame" in raw.notes[-1]


def test_folder_names_and_columns_without_a_name_are_no_labels(tmp_path):
    for year in (2020, 2021):
        (tmp_path / f"year={year}").mkdir()
        frame = pd.DataFrame({"a": [1.0, 5.0, 7.0], "y": [0, 1, 0]})
        frame.to_parquet(tmp_path / f"year={year}" / "a.parquet")
    raw = read_as(tmp_path, TABLE)
    assert raw.columns.label == "y"
    assert [raw.table.table.names[n] for n in raw.table.kinds] == ["year", "a"]
    path = tmp_path / "a.csv"
    path.write_text("a,y,\n" + "1,0,\n2,1,\n4,1,\n" * 3)  # a delimiter at the end of each line
    assert read_as(path, TABLE).columns.label == "y"


def test_labels_of_a_model_of_numbers_may_be_missing_if_they_are_not_used(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.eye(3), y=[0, np.nan, 1])
    assert read_for_model(path, 3, labels=False).labels is None
    assert read_for_model(path, 3).labels.tolist() == [0, 1]
    path = tmp_path / "a.csv"
    path.write_text("1,2,\n3,4,\n")
    raw = read_for_model(path, 2, labels=False)
    assert (raw.labels, raw.inputs.dense.tolist()) == (None, [[1, 2], [3, 4]])


@pytest.mark.parametrize("text", [(), ("b",)])
def test_returns_within_lines_are_blanks(tmp_path, text):
    path = tmp_path / "a.csv"
    for end in ("\n", "\r\n"):
        lines = ["a,b,y", "1,foo\rbar,0", "2,foo bar,1", "4,x\r,1"] + ["7,x,0"] * 3
        path.write_bytes("".join(line + end for line in lines).encode())
        raw = read_as(path, ReadOptions(table=TableOptions(text=text)))
        assert raw.rows == 6 and raw.locate(2).endswith("a.csv:4")
        if not text:
            column = raw.table.table.columns[1]
            assert [column.values[n] for n in column.codes] == ["foo bar"] * 2 + ["x"] * 4


def test_a_wrong_date_is_reported_with_its_line(tmp_path):
    path = tmp_path / "a.csv"
    day, rows = "{:02}/03/2020,{}\n", [*range(1, 31)]
    path.write_text("day,y\n" + "".join(day.format(n, n % 2) for n in rows))
    loaded = load(path, options=TABLE)
    for wrong in ("2020-03-05", "03/31/2020", "soon"):
        for before in ("01/02/2020,0\n", "", "NA,1\n"):
            path.write_text(f"day,y\n{before}{wrong},1\n05/02/2020,0\n")
            line = 3 if before else 2
            complaint = rf"a\.csv:{line}: column 'day': expected a date; got '{wrong}'"
            with pytest.raises(DataError, match=complaint):
                read_for_model(path, loaded.train.features, encoding=loaded.table)
    path.write_text("day,y\n" + "".join(day.format(n, n % 2) for n in [*rows, 32]))
    with pytest.raises(
        DataError, match=r"a\.csv:32: column 'day': expected a date; got '32.*--categ"
    ):
        load(path, options=TABLE)


SEVERAL = "size,a,colour,b\n" + "".join(
    f"{n * n},{n / 2},{'red' if n % 2 else 'blue'},{100 - n}\n" for n in range(12)
)


def test_several_label_columns_are_numbers_in_their_order(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(SEVERAL.replace("49,3.5,", "49,,").replace(",red,95", ",red,"))
    raw = read_as(path, replace(TABLE, label=("b", "a")))
    kept = [n for n in range(12) if n not in (5, 7)]
    assert raw.labels.tolist() == [[100 - n, n / 2] for n in kept]
    assert raw.notes[-1] == "2 rows without a label (columns 'b', 'a') are left out"
    assert [raw.table.table.names[n] for n in raw.table.kinds] == ["size", "colour"]
    encoding = prepare(raw, loss="auto").table
    encoding = TableEncoding.from_description(
        json.loads(json.dumps(encoding.description())), encoding.arrays()
    )
    later = tmp_path / "later.csv"
    for text, known in (
        ("colour,b,a,size\nred,1,2,3\n", [[1, 2]]),
        ("3,2,red,1\n", [[1, 2]]),  # without names, the columns are in the order of training
        ("3,red\n", None),
        ("size,colour,a\n3,red,2\n", None),
    ):
        later.write_text(text)
        rows = read_for_model(later, encoding.features, encoding=encoding, header="auto")
        assert (rows.labels if known is None else rows.labels.tolist()) == known
        np.testing.assert_array_equal(rows.inputs.dense, encoded(encoding, size=3, colour="red"))


def encoded(encoding, **cells):
    """One row of these cells."""
    return encode({name: [value] for name, value in cells.items()}, encoding, "X").dense


def test_columns_of_0_and_1_are_label_lists_unless_the_loss_is_one_of_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,x,y\n" + "".join(f"{n * n},{n % 2},{n % 3 // 2}\n" for n in range(12)))
    raw = read_as(path, replace(TABLE, label=("x", "y")))
    assert prepare(raw, loss="auto").encoding.kind == "multilabel"
    numbers = prepare(raw, loss="squared")
    assert numbers.encoding.targets == 2
    targets = numbers.encoding.numbers_of(numbers.train.labels.values.reshape(-1, 2))
    assert {*targets.round(6).ravel().tolist()} == {0, 1}


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        (("a", "colour"), r"a\.csv:2: column 'colour': expected a number; got 'blue'"),
        (("a", "2020"), r"a\.csv has no label column '2020'"),
        (("a", "1"), r"a\.csv: column 'a' is given twice as a label column"),
    ],
)
def test_label_columns_that_are_no_numbers_are_named(tmp_path, label, complaint):
    path = tmp_path / "a.csv"
    path.write_text(SEVERAL)
    with pytest.raises(DataError, match=complaint):
        read_as(path, replace(TABLE, label=label))
    grouped = replace(TABLE, label=("a", "b"), group="b", table=TableOptions(group="b"))
    with pytest.raises(DataError, match="column 'b' is the label column"):
        read_as(path, grouped)
