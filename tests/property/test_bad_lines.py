"""Readers with --bad-lines keep the same rows as simple independent readers."""

import csv
import gzip
import itertools
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

from hogbatch.data import text
from hogbatch.data.signatures import compression_of, not_text
from hogbatch.errors import DataError
from tests.support.property_tests import max_examples
from tests.support.reading import read

# Compiled, integers wrap and floats overflow without a word; interpreted, NumPy warns.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LARGEST = 2**31 - 2


class Bad(Exception):
    """A line is malformed."""


class Row(NamedTuple):
    """A row that is kept."""

    line: int
    labels: list
    features: list  # pairs of index and value, or values


def decimal(token):
    if not DECIMAL.fullmatch(token):
        raise Bad
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(token)):
            raise Bad
    return float(token)


def kept(content, parse):
    """The rows that `parse` returns, and the numbers of malformed lines."""
    rows, bad = [], []
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    lines = content.split(b"\n")
    for line, content in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            row = parse(content)
        except Bad:
            bad.append(line)
        else:
            rows += [Row(line, *row)] if row is not None else []
    return rows, bad


def pairs_of(content):
    """The labels and index:value pairs of a line."""
    fields = content.decode("ascii", "replace").replace(", ", ",").split()
    labels = fields.pop(0).split(",") if fields and ":" not in fields[0] else []
    labels, features = [decimal(label) for label in labels], {}
    for field in fields:
        if ":" not in field:
            raise Bad
        index, value = field.split(":", 1)
        index = decimal(index)
        if not (0 <= index <= LARGEST and index == int(index)) or index in features:
            raise Bad
        features[int(index)] = np.float32(decimal(value))
    return labels, sorted(features.items())


def is_listed(label):
    return 0 <= label <= LARGEST and label == int(label)


def libsvm(content, wanted):
    """Rows, malformed lines, and the first index."""

    def parse(line):
        line = re.sub(rb"(?<!\S)qid:\d+(?!\S)", lambda q: b" " * len(q[0]), line.split(b"#")[0])
        labels, features = pairs_of(line)
        if wanted == 1 and features and features[0][0] == 0:
            raise Bad
        return (labels, features) if labels or features else None

    rows, bad = kept(content, parse)
    several = [row for row in rows if len(row.labels) != 1]
    unlisted = [row for row in rows if not all(map(is_listed, row.labels))]
    if several and unlisted:
        odd = several if len(several) < len(unlisted) else unlisted
        rows = [row for row in rows if row not in odd]
        bad = sorted(bad + [row.line for row in odd])
    lowest = min((index for row in rows for index, _ in row.features), default=1)
    return rows, bad, min(lowest, 1) if wanted is None else wanted


def xmc(content, features, labels):
    """Rows after the header, and malformed lines."""

    def parse(line):
        mine, pairs = pairs_of(line)
        if any(not is_listed(label) or label >= labels for label in mine):
            raise Bad
        if any(index >= features for index, _ in pairs):
            raise Bad
        return mine, pairs

    return kept(content, parse)


def table(content, width):
    """Rows and malformed lines."""

    def parse(line):
        if not line.strip(b"\r"):
            return None
        line = line.decode("utf-8", "replace")
        try:
            cells = next(csv.reader([line], skipinitialspace=True)) if '"' in line else None
        except csv.Error:
            raise Bad from None
        cells = [decimal(cell.strip()) for cell in cells or line.split(",")]
        if len(cells) != width:
            raise Bad
        return [cells[-1]], cells[:-1]

    return kept(content, parse)


usual = st.one_of(st.integers(-9, 99).map(str), st.floats(-9, 9, width=32).map(repr))
odd = st.sampled_from(
    [
        "nan",
        "-inf",
        "1e400",
        "1e39",
        "1e-400",
        "x",
        "",
        "1_0",
        "٣",
        "é",
        "\0",
        "1-2",
        "0x1",
        ".",
        ",",
    ]
)
number = st.one_of(usual, usual, usual, odd)
small = st.integers(0, 5).map(str)
index = st.one_of(
    small,
    small,
    small,
    st.sampled_from(["-1", "1.5", "1e1", "-0", "2147483646", "2147483647", "9" * 20]),
)
pair = st.builds("{}:{}".format, index, number)
labels = st.one_of(
    st.sampled_from(["1", "-1", "0"]), number, st.lists(small, max_size=3).map(",".join)
)
pairs = st.lists(pair, max_size=3).map(" ".join)
good = st.builds(
    "{} {}:{} {}:{}".format, st.integers(0, 2), st.integers(0, 2), usual, st.integers(3, 5), usual
)
noise = st.sampled_from(
    ["", " ", "\t", "\r", "# 1:1", "1 qid:3 1:1", "1, 2 1:1", "1 1:1 1:2", "1 1"]
)
sparse_line = st.one_of(good, good, st.builds("{} {}".format, labels, pairs), noise).map(str.encode)
cells = st.lists(number, min_size=1, max_size=4).map(",".join)
full = st.lists(usual, min_size=3, max_size=3).map(",".join)
quoted = st.sampled_from(
    ['"1","2",3', '1,"2', '1,"2\r",3', " 1, 2 ,3 ", "1\t,2,3", "1,2,3\r", "\r"]
)
table_line = st.one_of(full, full, cells, quoted).map(str.encode)
bytes_line = st.binary(max_size=8).map(lambda line: line.replace(b"\n", b""))


def files(line):
    """The content of a file, its line ends, and whether the last line has one."""
    lines = st.lists(st.one_of(line, line, line, bytes_line), max_size=8)
    ends = st.sampled_from([b"\n", b"\n", b"\r\n"])
    return st.builds(
        lambda lines, end, last: end.join(lines) + (end if last else b""),
        lines,
        ends,
        st.booleans(),
    )


WAYS = list(itertools.product(["", ".gz"], [1 << 22, 8]))


def read_all(name, content, **options):
    """Read a file plain and compressed, in one block and in small blocks; results must be equal."""
    assume(not_text(content) is None and not compression_of(content))
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PIECE_BYTES", 1)
        for ending, block in WAYS:
            patch.setattr(text, "BLOCK_BYTES", block)
            path = Path(folder) / (name + ending)
            path.write_bytes(gzip.compress(content) if ending else content)
            try:
                raw = read(path, threads=1, bad_lines=1.0, **options)
            except DataError as error:
                assert "\n" not in str(error)
                outcomes.append(str(error).replace(str(path), name))
            else:
                outcomes.append((raw, summary(raw)))
    said = [outcome if isinstance(outcome, str) else outcome[1] for outcome in outcomes]
    assert said == said[:1] * len(WAYS)
    return outcomes[0]


def rows_of(raw):
    """The rows in the form of the simple readers; label lists sorted, without duplicates."""
    for row, line in enumerate(raw.lines.tolist()):
        if raw.labels is not None:
            labels = [raw.labels[row].item()]
        else:
            begin, end = raw.label_lists.indptr[row : row + 2]
            labels = raw.label_lists.indices[begin:end].tolist()
        if not len(raw.inputs.indptr):
            yield Row(line, labels, raw.inputs.dense[row].tolist())
            continue
        begin, end = raw.inputs.indptr[row : row + 2]
        indices = (raw.inputs.indices[begin:end] + raw.index_base).tolist()
        values = raw.inputs.values[begin:end].tolist()
        yield Row(line, labels, list(zip(indices, values, strict=True)))


def summary(raw):
    return list(rows_of(raw)), raw.skipped, raw.features, raw.index_base, raw.labels is None


def assert_kept(outcome, rows, bad, lists):
    """Check that exactly these rows were kept and these lines reported."""
    if not rows:
        assert isinstance(outcome, str)
        return
    raw, _ = outcome
    if lists:
        rows = [row._replace(labels=sorted(set(row.labels))) for row in rows]
    assert list(rows_of(raw)) == rows
    assert raw.skipped.total == len(bad)
    assert [mistake.line for mistake in raw.skipped.first] == bad[:20]
    assert all(mistake.column >= 1 for mistake in raw.skipped.first)


@max_examples(150)
@given(files(sparse_line), st.sampled_from([None, 0, 1]))
@example(b"1 1:1\n-1 1:1\n-1 1:1\n 1:1\n", None)
@example(b"1,2 1:1\n3 1:1\n4,5 1:1\n0.5 1:1\n", None)
@example(b"1 2:1\n1 0:1\n1 3:1 2:1\n1 2:1 2:1", 1)
def test_libsvm_keeps_what_a_plain_reader_keeps(content, wanted):
    rows, bad, base = libsvm(content, wanted)
    lists = any(len(row.labels) != 1 for row in rows)
    outcome = read_all("a.svm", content, index_base=wanted)
    assert_kept(outcome, rows, bad, lists)
    if rows:
        raw, _ = outcome
        highest = max((index for row in rows for index, _ in row.features), default=base - 1)
        assert (raw.index_base, raw.features) == (base, highest + 1 - base)


@max_examples(150)
@given(files(sparse_line), st.integers(0, 2))
@example(b"0 1:1\n9 1:1\n0 9:1\n\n", 0)
@example(b"0 5:1", 1)
def test_xmc_text_keeps_what_a_plain_reader_keeps(content, blank):
    rows, bad = xmc(b"\n" + content, 5, 4)
    rows = rows[1:]  # without the header
    count = len(rows) + len(bad)
    header = f"{count} 5 4\n".encode()
    ended = content if content.endswith(b"\n") or not content else content + b"\n"
    outcome = read_all("a.xmc", header + ended + b"\n" * blank)
    assert_kept(outcome, rows, bad, lists=True)
    if count:
        outcome = read_all("a.xmc", f"{count + 9} 5 4\n".encode() + content)
        assert isinstance(outcome, str)


@max_examples(150)
@given(files(table_line), st.sampled_from([b"a,b,c", b"1,2,3", b"\n1,2,3"]))
def test_csv_keeps_what_a_plain_reader_keeps(content, first):
    content = first + b"\n" + content
    header = first.startswith(b"a")
    rows, bad = table(content, 3)
    bad = bad[1:] if header else bad
    setting = "yes" if header else "no"  # "auto" would look at the lines that follow, too
    assert_kept(read_all("a.csv", content, header=setting), rows, bad, lists=False)
