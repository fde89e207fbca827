"""Entries of the data cache with valid checksums, whose contents no reader returns."""

import numpy as np
import pytest

from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.kinds import TableOptions
from tests.support.prepared_files import read_entry, write_entry
from tests.support.reading import read
from tests.unit.data.test_cache import TEXTS, entries, flat


def rewritten(entry, change):
    """Change the scalars and arrays of an entry with `change`, and its checksums accordingly."""
    header, arrays = read_entry(entry)
    change(header[2], arrays)
    header[1] = [*arrays]
    write_entry(entry, header, arrays)


def put(name, at, value):
    """The change of one cell of an array."""

    def change(scalars, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][at] = value

    return change


def swap(name, array):
    """The change of a whole array, or of a scalar if `name` is its number."""

    def change(scalars, arrays):
        if isinstance(name, int):
            scalars[name] = array
        else:
            arrays[name] = array(arrays[name]) if callable(array) else array

    return change


ROW_CHANGES = {
    **{f"index {value}": put("indices", 0, value) for value in (5000, 5, -1, 2**31 - 1)},
    "indices that descend": put("indices", 0, 4),
    "indptr that descends": put("indptr", 1, 2**40),
    "indptr that starts later": put("indptr", 0, 1),
    "fewer values": swap("values", lambda values: values[1:]),
    "NaN": put("values", 0, np.nan),
    "an infinite label": swap("labels", lambda labels: labels + np.inf),
    "fewer labels": swap("labels", lambda labels: labels[1:]),
    "another dtype": swap("values", lambda values: values.astype(np.float64)),
    "another byte order": swap("indices", lambda indices: indices.astype(">i4")),
    "text": swap("labels", lambda labels: labels.astype("S3")),
    "another shape": swap("indptr", lambda indptr: indptr[:, None]),
    "no dimension": swap("lines", np.array(1)),
    "lines that descend": put("lines", 0, 99),
    "fewer features": swap(0, 2),
    "no number of features": swap(0, "x"),
    "a huge number of features": swap(0, 10**30),
    "another base": swap(3, 7),
    "skipped lines without a reason": swap(4, [3, []]),
    "another number of scalars": lambda scalars, arrays: scalars.pop(),
    "a missing array": lambda scalars, arrays: arrays.pop("values"),
    "another array": lambda scalars, arrays: arrays.update(x=np.arange(3)),
}
LIST_CHANGES = {
    "a label beyond the header": put("label_indices", 0, 40),
    "labels that descend": put("label_indices", 0, 3),
    "labels besides lists": swap("labels", np.zeros(2)),
    "no lists": lambda scalars, arrays: arrays.pop("label_indices"),
}


@pytest.mark.parametrize(
    ("name", "change"),
    [*(("a.svm", each) for each in ROW_CHANGES), *(("a.xmc", each) for each in LIST_CHANGES)],
)
def test_rows_that_no_reader_returns_are_read_again(old_file, cache, parsed, name, change):
    path = old_file(name, TEXTS[name])
    expected = flat(read(path, cache))
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    rewritten(entry, {**ROW_CHANGES, **LIST_CHANGES}[change])
    assert entry.read_bytes() != whole
    assert flat(read(path, cache)) == expected
    assert len(parsed) == 2 and entry.read_bytes() == whole


def test_an_entry_that_is_written_again_is_used(old_file, cache, parsed):
    path = old_file("a.svm", TEXTS["a.svm"])
    read(path, cache)
    rewritten(*entries(cache), put("values", 0, 7.0))
    assert read(path, cache).inputs.values[0] == 7.0 and len(parsed) == 1


ROWS = b"1,true,red,2013-01-31,A b,u\n,false,blue,2013-02-01,,v\n"
TABLE = b"n,flag,color,day,note,y\n" + 2 * ROWS
OPTIONS = ReadOptions(table=TableOptions(text=("note",)), header="yes")
COLUMN_CHANGES = {
    "a code beyond the values": put("2.codes", 0, 2),
    "a code below none": put("2.codes", 0, -2),
    "a value twice": swap("2.values", np.frombuffer(b'["red", "red"]', np.uint8)),
    "a surrogate": swap("2.values", np.frombuffer(b'["red", "\\ud800"]', np.uint8)),
    "a number as value": swap("2.values", np.frombuffer(b'["red", 1]', np.uint8)),
    "deep JSON": swap("2.values", np.frombuffer(b"[" * 50_000, np.uint8)),
    "no JSON": swap("2.values", np.frombuffer(b"\xff", np.uint8)),
    "a truth value of 2": put("1.values", 0, 2),
    "an infinite date": put("3.values", 0, np.inf),
    "text beyond the characters": put("4.indptr", -1, 100),
    "text that ends before it starts": put("4.indptr", 1, 100),
    "negative text": put("4.indptr", 0, -1),
    "a longer column": swap("0.values", lambda values: np.append(values, 1.0)),
    "no rows": lambda scalars, arrays: arrays.update(
        {n: array[: 1 if "indptr" in n else 0] for n, array in arrays.items() if "2.v" not in n}
    ),
    "another position": lambda scalars, arrays: scalars[0].update({"9": scalars[0].pop("0")}),
    "another type": lambda scalars, arrays: scalars[0].update({"0": "date"}),
    "an unknown type": lambda scalars, arrays: scalars[0].update({"0": "Column"}),
    "text that nobody requests": lambda scalars, arrays: (
        scalars[0].update({"0": "text"}),
        arrays.update({"0.characters": arrays["4.characters"], "0.indptr": arrays["4.indptr"]}),
    ),
    "fewer lines than rows": swap(1, 1),
    "a missing column": lambda scalars, arrays: arrays.pop("3.values"),
}


@pytest.mark.parametrize("change", COLUMN_CHANGES)
def test_columns_that_no_reader_returns_are_read_again(old_file, cache, parsed, change):
    path = old_file("a.csv", TABLE)
    read_as(path, OPTIONS, cache)
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    read_as(path, OPTIONS, cache)
    assert len(parsed) == 1
    rewritten(entry, COLUMN_CHANGES[change])
    read_as(path, OPTIONS, cache)
    assert len(parsed) == 2 and entry.read_bytes() == whole
