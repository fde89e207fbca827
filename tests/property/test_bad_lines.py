"""Readers of sparse text keep the rows, and report the lines, that simple readers do.

A file of one block is parsed line by line, and one of small blocks is parsed by the compiled
parser, so both parsers are compared with each other, too.
"""

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
from tests.support.reading import packed, read

# Compiled, integers wrap and floats overflow without a word; interpreted, NumPy warns.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
QUERY_ID = re.compile(rb"(?<!\S)qid:\d+(?!\S)")
LARGEST = 2**31 - 2


class Bad(Exception):
    """A line is malformed."""


class Row(NamedTuple):
    """A row that is kept."""

    line: int
    labels: list
    features: list  # pairs of index and value


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
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            row = parse(line)
        except Bad:
            bad.append(number)
        else:
            rows += [Row(number, *row)] if row is not None else []
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
        if not is_listed(index) or index in features:
            raise Bad
        features[int(index)] = np.float32(decimal(value))
    return labels, sorted(features.items())


def is_listed(label):
    return 0 <= label <= LARGEST and label == int(label)


def libsvm(content, wanted):
    """Rows, malformed lines, and the first index."""

    def parse(line):
        line = QUERY_ID.sub(lambda q: b" " * len(q[0]), line.split(b"#")[0])
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


usual = st.one_of(st.integers(-9, 99).map(str), st.floats(-9, 9, width=32).map(repr))
ODD = ["nan", "1e400", "1e39", "1e-400", "x", "", "1_0", "٣", "\0", "1-2", "1.5.5", "0x1", "."]
number = st.one_of(usual, usual, usual, st.sampled_from(ODD))
small = st.integers(0, 5).map(str)
LARGE = ["-1", "1.5", "1e1", "-0", "2147483646", "2147483647", "9" * 20, "18446744073709551617"]
index = st.one_of(small, small, small, st.sampled_from(LARGE))
pair = st.builds("{}:{}".format, index, number)
some_labels = st.lists(small, max_size=3).map(",".join)
labels = st.one_of(st.sampled_from(["1", "-1", "0"]), number, some_labels)
pairs = st.lists(pair, max_size=3).map(" ".join)
good = st.builds(
    "{} {}:{} {}:{}".format, st.integers(0, 2), st.integers(0, 2), usual, st.integers(3, 5), usual
)
NOISE = ["", "\t", "# 1:1", "1 qid:3 1:1", "1, 2 1:1", ",3 1:1", "1 1:1 1:2", "1 1", "1 1:2 3:"]
sparse_line = st.one_of(
    good, good, st.builds("{} {}".format, labels, pairs), st.sampled_from(NOISE)
).map(str.encode)
bytes_line = st.binary(max_size=8).map(lambda line: line.replace(b"\n", b""))
files = st.builds(
    lambda lines, end, last: end.join(lines) + (end if last else b""),
    st.lists(st.one_of(sparse_line, sparse_line, sparse_line, bytes_line), max_size=8),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
    st.booleans(),
)
WAYS = [("", 1 << 22), ("", 8), (".gz", 8)]


def read_all(name, content, bad_lines, **options):
    """Read a file in one block, in small blocks, and compressed; results must be equal.

    The result is the RawSet, or the message of the error.
    """
    assume(not_text(content) is None and not compression_of(content))
    outcomes, said = [], []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PIECE_BYTES", 1)
        for ending, block in WAYS:
            patch.setattr(text, "BLOCK_BYTES", block)
            path = Path(folder) / (name + ending)
            path.write_bytes(packed(ending, content))
            try:
                raw = read(path, threads=1, bad_lines=bad_lines, **options)
            except DataError as error:
                assert "\n" not in str(error)
                raw = str(error).replace(str(path), name)
            outcomes.append(raw)
            said.append(raw if isinstance(raw, str) else summary(raw))
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
        begin, end = raw.inputs.indptr[row : row + 2]
        indices = (raw.inputs.indices[begin:end] + raw.index_base).tolist()
        values = raw.inputs.values[begin:end].tolist()
        yield Row(line, labels, list(zip(indices, values, strict=True)))


def summary(raw):
    return list(rows_of(raw)), raw.skipped, raw.features, raw.index_base, raw.labels is None


def assert_kept(outcome, rows, bad, lists, strict):
    """Check that exactly these rows were kept and these lines reported."""
    if not rows or (strict and bad):
        assert isinstance(outcome, str)
        return
    if lists:
        rows = [row._replace(labels=sorted(set(row.labels))) for row in rows]
    assert list(rows_of(outcome)) == rows
    assert outcome.skipped.total == len(bad)
    assert [mistake.line for mistake in outcome.skipped.first] == bad[:20]
    assert all(mistake.column >= 1 for mistake in outcome.skipped.first)


strictly = st.sampled_from([False, False, True])  # whether no bad line is allowed


@max_examples(80)
@given(files, st.sampled_from([None, 0, 1]), strictly)
@example(b"1 1:1\n-1 1:1\n-1 1:1\n 1:1\n", None, False)
@example(b"1,2 1:1\n3 1:1\n4,5 1:1\n0.5 1:1\n", None, True)
@example(b"1 2:1\n1 0:1\n1 3:1 2:1\n1 2:1 2:1", 1, False)
@example(b"# 1:1, 2:2\nqid:1 2:1\n1,2 qid:3\n 3:1 # 4:1\n", 1, True)
def test_libsvm_keeps_what_a_plain_reader_keeps(content, wanted, strict):
    rows, bad, base = libsvm(content, wanted)
    lists = any(len(row.labels) != 1 for row in rows)
    outcome = read_all("a.svm", content, 0.0 if strict else 1.0, index_base=wanted)
    assert_kept(outcome, rows, bad, lists, strict)
    if not isinstance(outcome, str):
        highest = max((index for row in rows for index, _ in row.features), default=base - 1)
        assert (outcome.index_base, outcome.features) == (base, highest + 1 - base)


@max_examples(60)
@given(files, st.integers(0, 2), st.sampled_from([0, 0, 0, 9]), strictly)
@example(b"0 1:1\n9 1:1\n0 9:1\n\n", 0, 0, False)
@example(b"0 5:1", 1, 0, True)
def test_xmc_text_keeps_what_a_plain_reader_keeps(content, blank, missing, strict):
    rows, bad = xmc(b"\n" + content, 5, 4)
    rows = rows[1:]  # without the header
    header = f"{len(rows) + len(bad) + missing} 5 4\n".encode()
    ended = content if content.endswith(b"\n") or not content else content + b"\n"
    outcome = read_all("a.xmc", header + ended + b"\n" * blank, 0.0 if strict else 1.0)
    if missing > blank:
        assert isinstance(outcome, str)
    else:
        assert_kept(outcome, rows, bad, True, strict)
