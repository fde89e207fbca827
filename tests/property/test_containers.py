"""Every type of cell in every container gives the same features, or the same complaint."""

from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from hogbatch.data.load import load, prepare
from hogbatch.data.raw import ReadOptions
from hogbatch.data.table.given import encode, training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import HogbatchError

ROWS = 60
RANDOM = np.random.default_rng(5)
NUMBERS = RANDOM.normal(size=ROWS).round(6).tolist()
LABELS = [n % 2 for n in range(ROWS)]
START = datetime(2024, 2, 27, 21, 30)


def cells(make):
    return [make(n) for n in RANDOM.integers(0, 40, ROWS).tolist()]


CELLS = {
    "integers": cells(int),
    "numbers": NUMBERS,
    "numbers with gaps": [None if n % 5 == 0 else x for n, x in enumerate(NUMBERS)],
    "integers with gaps": [None if n % 7 == 0 else n % 11 for n in range(ROWS)],
    "booleans": cells(lambda n: n % 3 == 0),
    "decimals": cells(lambda n: Decimal(n) / 8),
    "text": cells(lambda n: ["red", "green", "blue"][n % 3]),
    "text with gaps": cells(lambda n: [None, "x", " y ", "x y"][n % 4]),
    "text of numbers": cells(lambda n: str(n % 5)),
    "words among numbers": cells(lambda n: "many" if n > 30 else str(n)),
    "accents": cells(lambda n: ["é", "ü,ö", 'a "b"'][n % 3]),
    "dates": cells(lambda n: (START + timedelta(days=n)).date()),
    "dates and times": cells(lambda n: START + timedelta(hours=7 * n)),
    "times with a zone": cells(lambda n: (START + timedelta(hours=7 * n)).replace(tzinfo=UTC)),
    "times with an offset": cells(
        lambda n: (START + timedelta(hours=n)).replace(tzinfo=timezone(timedelta(hours=2)))
    ),
    "times of day": cells(lambda n: time(n % 24, 30)),
    "nothing": [None] * ROWS,
    "a constant": [3] * ROWS,
    "distinct text": [f"row {n} of {ROWS}" for n in range(ROWS)],
    "an infinite number": [*NUMBERS[1:], float("inf")],
    "a large number": [*NUMBERS[1:], 1e300],
}


def frame(values):
    return pandas.DataFrame({"c": pandas.Series(values, dtype=object), "x": NUMBERS})


def arrow(values):
    return pyarrow.table({"c": pyarrow.array(values, from_pandas=True), "x": NUMBERS})


IN_MEMORY = {
    "objects": frame,
    "pandas": lambda values: frame(values).convert_dtypes(),
    "polars": lambda values: polars.from_arrow(arrow(values)),
    "lazy": lambda values: polars.from_arrow(arrow(values)).lazy(),
    "arrow": arrow,
    "batch": lambda values: arrow(values).to_batches()[0],
    "dictionary": lambda values: {"c": values, "x": NUMBERS},
    "rows": lambda values: [{"c": c, "x": x} for c, x in zip(values, NUMBERS, strict=True)],
    "matrix": lambda values: np.array([values, NUMBERS], object).T,
    "lists": lambda values: [list(row) for row in zip(values, NUMBERS, strict=True)],
}


def csv(table, path, separator=","):
    path = path.with_suffix(".csv" if separator == "," else ".tsv")
    with_labels = pandas.DataFrame(
        {n: table[n].to_pylist() for n in table.column_names}, dtype=object
    )
    with_labels.to_csv(path, sep=separator, index=False)
    return path


def parquet(table, path):
    pyarrow.parquet.write_table(table, path)
    return path


def feather(table, path):
    pyarrow.feather.write_feather(table, path)
    return path


FILES = {
    "CSV": csv,
    "TSV": lambda table, path: csv(table, path, "\t"),
    "Parquet": parquet,
    "Feather": feather,
}


def outcome(read):
    """The features of training and test rows, and the kinds of columns; or the complaint."""
    try:
        loaded = read()
    except HogbatchError as error:
        complaint = str(error).partition("column ")[2].partition(": ")[2]
        return complaint.partition(";")[0]  # without advice about flags
    kinds = [column.encoder.kind for column in loaded.table.columns]
    sets = [loaded.train, loaded.sets["test"]]
    return kinds, [np.concatenate([each.reshape(-1) for each in rows.inputs]) for rows in sets]


def equal(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one[0] == other[0] and all(map(np.array_equal, one[1], other[1]))


def both_refuse(one, other):
    """Text that is no finite number is an unexpected word, and an infinite number out of range."""
    return isinstance(one, str) and isinstance(other, str) and one[:10] == other[:10]


@pytest.mark.parametrize("values", CELLS.values(), ids=CELLS)
def test_the_features_do_not_depend_on_the_container(values, tmp_path):
    def given(rows):
        return prepare(training_set(rows, LABELS, None, TableOptions()))

    def read(path):
        return load(path, options=ReadOptions(label=("y",), table=TableOptions()))

    expected = outcome(lambda: given(IN_MEMORY["arrow"](values)))
    for name, container in IN_MEMORY.items():
        assert equal(outcome(lambda: given(container(values))), expected), name  # noqa: B023
    table = arrow(values).append_column("y", pyarrow.array(LABELS))
    for name, write in FILES.items():
        path = write(table, tmp_path / name)
        found = outcome(lambda: read(path))  # noqa: B023
        assert equal(found, expected) or both_refuse(found, expected), name
    for dtype in (None, str):
        back = pandas.read_csv(tmp_path / "CSV.csv", usecols=["c", "x"], dtype=dtype)
        found = outcome(lambda: given(back))  # noqa: B023
        assert equal(found, expected) or both_refuse(found, expected), dtype


@pytest.mark.parametrize("values", CELLS.values(), ids=CELLS)
def test_a_model_of_one_container_takes_rows_of_every_other(values):
    rows = {name: container(values) for name, container in IN_MEMORY.items()}
    try:
        loaded = prepare(training_set(rows["arrow"], LABELS, None, TableOptions()))
    except HogbatchError:
        return  # these cells cannot be used
    expected = encode(rows["arrow"], loaded.table, "X")
    for name, other in rows.items():
        found = encode(other, loaded.table, "X")
        assert all(map(np.array_equal, found, expected)), name
