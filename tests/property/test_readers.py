"""Compiled and line-by-line parsers agree with each other and with scikit-learn."""

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from numpy.testing import assert_array_equal
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from hogbatch.data import csv, sparse, text
from hogbatch.data.columns import IGNORED, LABEL, TableForm, by_position
from hogbatch.data.csr import to_dense
from hogbatch.data.readers import READERS
from hogbatch.data.samples import SAMPLES
from hogbatch.data.skipped import SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.text import BlockParser, TextBlock
from hogbatch.errors import DataError
from tests.support.property_tests import max_examples
from tests.support.reading import read

SOURCE = Source(Path("some.file"))

# Compiled code wraps integers and overflows floats silently; NumPy warns in interpreted code.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

plain = st.one_of(
    st.integers(-99, 99).map(str),
    st.floats(allow_nan=False, width=32, allow_infinity=False).map(repr),
    st.sampled_from(["+1", "-0", "1.", ".5", "1e3", "2E-4", "1e-400", "007"]),
)
odd = st.sampled_from(
    [
        "",
        "nan",
        "inf",
        "1e400",
        "3.5e38",
        "x",
        "1-2",
        "1.5.5",
        "+",
        "e",
        "1e",
        ".",
        "1_0",
        "٣",
        "\0",
    ]
)
blanks = st.sampled_from([" ", " ", " ", "\t", "  ", "\r", ", ", "\x0b", "qid:3", "qid:", "#"])
index = st.one_of(st.integers(0, 30).map(str), st.sampled_from(["-1", "1.5", "1e1", "2147483647"]))
pair = st.builds("{}:{}".format, index, plain)
labels = st.one_of(plain, st.lists(st.integers(0, 9).map(str), max_size=3).map(",".join))
usual_line = st.builds("{} {}".format, labels, st.lists(pair, max_size=4).map(" ".join))
odd_line = st.lists(st.one_of(pair, plain, odd, st.sampled_from([":", ","]), blanks), max_size=6)
sparse_lines = st.lists(st.one_of(usual_line, usual_line, odd_line.map("".join)), max_size=6)


def assert_same_arrays(one, other):
    for left, right in zip(one, other, strict=True):
        assert_array_equal(left, right, strict=True)


def in_blocks(lines, sizes):
    """Split lines into blocks of these sizes, and a last block; newlines are added."""
    first, blocks = 7, []
    for size in [*sizes, len(lines)]:
        text = "".join(line + "\n" for line in lines[:size]).encode()
        blocks.append(TextBlock(first, text))
        first, lines = first + text.count(b"\n"), lines[size:]
    return blocks


def parse_compiled(line_format, blocks, strict=True):
    """Parse blocks with the compiled parser into shared buffers."""
    ends = np.cumsum([line_format.max_counts(block.text) for block in blocks], axis=0)
    buffers = line_format.allocate(tuple(ends[-1].tolist()))
    begins = np.vstack([np.zeros_like(ends[:1]), ends[:-1]]).tolist()
    places = zip(blocks, begins, ends.tolist(), strict=True)
    parser = BlockParser(SOURCE, line_format, strict)
    parts = [parser.block(block, buffers, tuple(b), tuple(e)) for block, b, e in places]
    return list(itertools.chain.from_iterable(parts)), buffers


@pytest.mark.parametrize(
    "line_format",
    [
        sparse.SparseFormat(True, 1),
        csv.TableFormat(TableForm(SOURCE, ",", 4, (), 1), np.array([0, 1, LABEL, 2], np.int32)),
        csv.TableFormat(TableForm(SOURCE, ",", 3, (), 1), np.array([0, IGNORED, 1], np.int32)),
    ],
)
def test_buffers_have_the_size_that_is_checked_against_memory(line_format):
    for counts in ((0, 0, 0), (10, 20, 30)):
        counts = counts[: len(line_format.max_counts(b""))]
        buffers = line_format.allocate(counts)
        assert line_format.byte_size(counts) == sum(array.nbytes for array in buffers)


def buffers_for(line_format, block):
    """Buffers for one block, with its begin and end."""
    counts = tuple(line_format.max_counts(block.text))
    return line_format.allocate(counts), (0,) * len(counts), counts


def outcome(parse):
    """The result, or the message of the DataError."""
    try:
        return parse()
    except DataError as error:
        return str(error)


def assert_same_outcome(line_format, lines, sizes, join):
    """Blocks give the same arrays, or the same first error, as one block line by line."""
    [whole] = in_blocks(lines, [])
    by_line = outcome(
        lambda: join([BlockParser(SOURCE, line_format, True).by_line(whole)], None, line_format)
    )
    compiled = outcome(
        lambda: join(*parse_compiled(line_format, in_blocks(lines, sizes)), line_format)
    )
    if isinstance(by_line, str):
        assert compiled == by_line
    else:
        assert_same_arrays(compiled, by_line)
    kept = line_format.parse_lines(whole)
    parts, buffers = parse_compiled(line_format, in_blocks(lines, sizes), strict=False)
    assert_same_arrays(join(parts, buffers, line_format), kept.rows)
    assert SkippedLines.of_parts(part.skipped for part in parts) == kept.skipped


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    """Split unusual blocks down to single lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PIECE_BYTES", 1)
        yield


sizes = st.lists(st.integers(0, 3), max_size=3)


@max_examples(500)
@given(sparse_lines, sizes, st.booleans(), st.integers(0, 1))
@example(["1 1:1-2 3:"], [], True, 0)
@example(["1.5.5 e"], [], True, 0)
@example([" ", ""], [], False, 0)
@example(["1,2", ",3 1:1"], [], True, 0)
@example(["1 1:2:3 4"], [], True, 0)
@example(["1 1:2 12"], [], True, 0)
@example(["1 18446744073709551617:1"], [], True, 0)
@example(["1 2:1", "q", "3 1:1"], [1, 1], True, 1)
@example(["# 1:1, 2:2", "qid:1 2:1", "1,2 qid:3", " 3:1 # 4:1"], [1, 1, 1], True, 1)
def test_sparse_text_is_read_alike_compiled_and_line_by_line(lines, sizes, libsvm, base):
    assert_same_outcome(sparse.SparseFormat(libsvm, base), lines, sizes, sparse.join)


@max_examples(200)
@given(sparse_lines, sizes)
def test_facts_are_alike_compiled_and_line_by_line(lines, sizes):
    line_format = sparse.SparseFormat(True, 1)
    for block in in_blocks(lines, sizes):
        compiled = line_format.parse(block, *buffers_for(line_format, block))
        if compiled is not None:
            assert compiled.summary == line_format.parse_lines(block).summary


@max_examples(200)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), max_size=3),
            st.dictionaries(st.integers(0, 2**31 - 2), st.floats(-9, 9), max_size=3),
        ),
        min_size=1,
        max_size=6,
    ).filter(lambda rows: any(some or pairs for some, pairs in rows))
)
def test_usual_sparse_text_takes_the_fast_way(rows):
    lines = [
        ",".join(map(str, some)) + "".join(f" {i}:{value!r}" for i, value in pairs.items())
        for some, pairs in rows
    ]
    line_format = sparse.SparseFormat(False, 0)
    parts, buffers = parse_compiled(line_format, in_blocks(lines, [1, 2]))
    assert all(part.buffers is buffers for part in parts)
    parsed = sparse.join(parts, buffers, line_format)
    assert np.diff(parsed.label_indptr).tolist() == [len(some) for some, _ in rows]
    assert parsed.labels.tolist() == [label for some, _ in rows for label in some]
    assert np.diff(parsed.indptr).tolist() == [len(pairs) for _, pairs in rows]
    assert parsed.indices.tolist() == [i for _, pairs in rows for i in sorted(pairs)]
    values = np.array([pairs[i] for _, pairs in rows for i in sorted(pairs)], np.float32)
    assert_array_equal(parsed.values, values, strict=True)


def test_rows_stay_in_the_room_they_were_read_into():
    line_format = sparse.SparseFormat(True, 1)
    parts, buffers = parse_compiled(line_format, in_blocks(["1 1:1", "1 qid:1 1:2", "2"], [1, 1]))
    assert np.shares_memory(sparse.join(parts, buffers, line_format).values, buffers.values)


@pytest.mark.parametrize("line", ["1 2:3", "1 2:3 4:5", "1,2 3:4"])
@pytest.mark.parametrize("less", range(3))
def test_no_more_is_written_than_was_counted(line, less):
    line_format = sparse.SparseFormat(False, 0)
    block = in_blocks([line], [])[0]
    buffers, begin, counts = buffers_for(line_format, block)
    end = tuple(count - (which == less) for which, count in enumerate(counts))
    before = [array.copy() for array in buffers]
    with pytest.raises(DataError, match=r"some\.file changed while it was read"):
        BlockParser(SOURCE, line_format, True).block(block, buffers, begin, end)
    for which, place in ((0, 0), (1, 2), (2, 4), (2, 5)):
        if which == less:
            assert_array_equal(buffers[place][end[which] :], before[place][end[which] :])


cell = st.one_of(plain, plain, plain, odd, st.sampled_from([" 1", "2 ", "\t3", '"4"', " \r"]))
rows_of_cells = st.lists(st.lists(cell, min_size=2, max_size=3), max_size=5)


@max_examples(500)
@given(
    rows_of_cells,
    st.sampled_from([",", "\t", ", "]),
    st.sampled_from(["", "", "\n", "\r", "\r\r"]),
    st.sampled_from(
        [(0, 1), (LABEL, 0), (0, LABEL), (1, 0), (0, IGNORED), (IGNORED, 0), (LABEL, IGNORED)]
    ),
    sizes,
)
@example([["1-2", ""]], ",", "", (0, LABEL), [])
@example([["1.5.5", "e"]], ",", "", (0, LABEL), [])
@example([["1", "2"], ["3"]], ",", "", (0, LABEL), [1])
@example([["", "2"], ['"4"', "2"], ["3", "x"]], ",", "\r", (IGNORED, 0), [1, 1])
def test_csv_is_read_alike_compiled_and_line_by_line(rows, delimiter, end, places, sizes):
    lines = [delimiter.join(row) + end for row in rows]
    table = TableForm(SOURCE, delimiter[0], 2, (), 1)
    line_format = csv.TableFormat(table, np.array(places, np.int32))
    assert_same_outcome(line_format, lines, sizes, csv.join)


@max_examples(100)
@given(st.lists(st.tuples(plain, st.sampled_from(["", "x", "a b", "1-2", "é"])), min_size=1))
def test_csv_with_ignored_text_takes_the_fast_way(rows):
    line_format = csv.TableFormat(
        TableForm(SOURCE, ",", 2, (), 1), np.array([0, IGNORED], np.int32)
    )
    parts, buffers = parse_compiled(line_format, in_blocks([",".join(row) for row in rows], [1]))
    assert all(np.shares_memory(part.rows.dense, buffers.dense) for part in parts if part.size[0])
    expected = [[float(number)] for number, _ in rows]
    assert_array_equal(csv.join(parts, buffers, line_format).dense, expected)


@max_examples(100)
@given(
    st.lists(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), min_size=1, max_size=5), sizes
)
def test_usual_csv_takes_the_fast_way(rows, sizes):
    line_format = csv.TableFormat(TableForm(SOURCE, ",", 3, (), 1), by_position(3, 1).destinations)
    blocks = in_blocks([",".join(map(repr, row)) for row in rows], sizes)
    parts, buffers = parse_compiled(line_format, blocks)
    parsed = csv.join(parts, buffers, line_format)
    assert np.shares_memory(parsed.dense, buffers.dense)
    assert all(np.shares_memory(part.rows.dense, buffers.dense) for part in parts if part.size[0])
    assert_array_equal(parsed.dense, np.array(rows)[:, [0, 2]], strict=True)
    assert_array_equal(parsed.labels, np.array(rows)[:, 1], strict=True)


def test_no_more_rows_are_written_than_were_counted():
    line_format = csv.TableFormat(TableForm(SOURCE, ",", 2, (), 1), by_position(2, 1).destinations)
    buffers = line_format.allocate((2,))
    buffers.labels[:] = 7
    with pytest.raises(DataError, match=r"some\.file changed while it was read"):
        BlockParser(SOURCE, line_format, True).block(
            TextBlock(1, b"1,2\n3,4\n"), buffers, (0,), (1,)
        )
    assert buffers.labels[1] == 7


@st.composite
def labelled_matrices(draw):
    """A matrix with one label or (for True) one to four labels per row."""
    rows, features = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    value = st.one_of(st.just(0.0), st.floats(-1e6, 1e6, width=32))
    matrix = [[draw(value) for _ in range(features)] for _ in range(rows)]
    multilabel = draw(st.booleans())
    y = draw(st.lists(st.integers(-3, 3), min_size=rows, max_size=rows))
    marks = np.abs(y)[:, None] >= np.arange(4)
    return np.array(matrix), marks.astype(int) if multilabel else np.array(y), multilabel


@max_examples(100)
@given(labelled_matrices(), st.booleans(), st.sampled_from([None, "a comment\nof two lines"]))
def test_libsvm_is_read_as_scikit_learn_reads_it(case, zero_based, comment):
    matrix, y, multilabel = case
    style = {"zero_based": zero_based, "multilabel": multilabel}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.svm")
        dump_svmlight_file(matrix, y, path, comment=comment, **style)
        their_x, their_y = load_svmlight_file(path, n_features=matrix.shape[1], **style)
        ours = read(path, index_base=0 if zero_based else 1)
    dense = to_dense(ours.inputs, matrix.shape[1]).dense
    assert_array_equal(dense, their_x.toarray().astype(np.float32), strict=True)
    if multilabel and ours.label_lists is not None:
        ends = ours.label_lists.indptr[1:-1]
        lists = [tuple(part) for part in np.split(ours.label_lists.indices, ends)]
        assert lists == [tuple(sorted(part)) for part in their_y]
    else:
        assert_array_equal(ours.labels, np.array(their_y, np.float64).ravel(), strict=True)


def test_the_sample_is_read_as_scikit_learn_reads_it():
    ours = read(SAMPLES["a9a"].train)
    theirs, y = load_svmlight_file(str(SAMPLES["a9a"].train))
    assert ours.features == theirs.shape[1]
    assert_array_equal(ours.inputs.indptr, theirs.indptr)
    assert_array_equal(ours.inputs.indices, theirs.indices)
    assert_array_equal(ours.inputs.values, theirs.data)
    assert_array_equal(ours.labels, y)


@max_examples(200)
@given(
    st.binary(max_size=80),
    st.sampled_from([*READERS, ".txt", ".svm.gz"]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_any_bytes_are_data_or_a_data_error(content, ending, bad_lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{ending}"
        path.write_bytes(content)
        try:
            raw = read(path, bad_lines=bad_lines)
        except DataError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
        else:
            assert raw.rows > 0
            assert all(math.isfinite(value) for value in raw.inputs.values)
