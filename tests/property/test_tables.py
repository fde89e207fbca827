"""Any table is data or one error, and is read as pandas reads it."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from hogbatch.data.load import load
from hogbatch.data.raw import ReadOptions
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import UsageError
from tests.support.property_tests import max_examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

OPTIONS = ReadOptions(table=TableOptions())
cell = st.one_of(
    st.integers(-99, 99).map(str),
    st.floats(width=32).map(repr),
    st.sampled_from(["", "NA", "red", "blue", " x ", '"a,b"', '"a\nb"', '"', "2013-01-31", "true"]),
    st.sampled_from(["1,5", "1e400", "1_0", "٣", "\0", "31.12.2013", "05:06", "é", "-", "9" * 30]),
)
line = st.lists(cell, min_size=1, max_size=4)
ending = st.sampled_from(["\n", "\r\n", "\n\n"])


def expect_data_or_error(content, name="a.csv"):
    """Load bytes as a file; return the data, or None after an error of one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            loaded = load(path, options=OPTIONS)
        except UsageError as error:
            assert "\n" not in str(error)
            return None
    inputs = loaded.train.inputs
    assert np.isfinite(inputs.values if loaded.train.sparse else inputs.dense).all()
    return loaded


@given(st.lists(line, max_size=8), st.sampled_from(",;\t|"), ending)
@example([["a", "b"], ["1", "red"], ["2", "blue"]], ",", "\n")
@max_examples(150)
def test_any_cells_are_data_or_one_error(lines, delimiter, ending):
    text = "".join(delimiter.join(cells) + ending for cells in lines)
    expect_data_or_error(text.encode())


@given(st.binary(max_size=60), st.sampled_from([b"PAR1", b"ARROW1\0\0", b"a,b\n", b""]))
@max_examples(100)
def test_any_bytes_are_data_or_one_error(content, start):
    expect_data_or_error(start + content)


@given(
    st.lists(
        st.tuples(
            st.floats(-1e6, 1e6) | st.none(), st.sampled_from(["u", "v", "w w", "NA", 'x"y'])
        ),
        min_size=5,
        max_size=30,
    )
)
@max_examples(60)
def test_a_written_table_is_read_back(rows):
    def quoted(value):
        return '"' + value.replace('"', '""') + '"'

    text = "number,word,label\n" + "".join(
        f"{'' if number is None else repr(number)},{quoted(word)},{'ab'[n % 2]}\n"
        for n, (number, word) in enumerate(rows)
    )
    loaded = expect_data_or_error(text.encode())
    if loaded is not None:
        assert loaded.train.rows + (loaded.test.rows if loaded.test else 0) == len(rows)
