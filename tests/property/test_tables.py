"""Any table is data or one error, and no row of a written table is lost."""

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
tables = st.builds(
    lambda lines, mark, end: "".join(mark.join(cells) + end for cells in lines).encode(),
    st.lists(st.lists(cell, min_size=1, max_size=4), max_size=8),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
starts = st.sampled_from([b"PAR1", b"ARROW1\0\0", b"a,b\n", b""])
any_bytes = st.builds(bytes.__add__, starts, st.binary(max_size=60))


def load_or_error(content):
    """Load bytes as a file; return the data, or None after an error of one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(content)
        try:
            loaded = load(path, options=OPTIONS)
        except UsageError as error:
            assert "\n" not in str(error)
            return None
    inputs = loaded.train.inputs
    assert np.isfinite(inputs.values if loaded.train.sparse else inputs.dense).all()
    return loaded


@given(st.one_of(tables, any_bytes))
@example(b"a,b\n1,red\n2,blue\n")
@max_examples(150)
def test_any_cells_and_bytes_are_data_or_one_error(content):
    load_or_error(content)


words = st.sampled_from(["u", "v", "w w", "NA", 'x"y'])


@given(st.lists(st.tuples(st.floats(-1e6, 1e6) | st.none(), words), min_size=5, max_size=30))
@max_examples(30)
def test_no_row_of_a_written_table_is_lost(rows):
    text = "number,word,label\n"
    for n, (number, word) in enumerate(rows):
        quoted = word.replace('"', '""')
        text += f'{"" if number is None else repr(number)},"{quoted}",{"ab"[n % 2]}\n'
    loaded = load_or_error(text.encode())
    if loaded is not None:
        assert sum(each.rows for each in loaded.sets.values()) == len(rows)
