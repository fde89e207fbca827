import os

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.raw import ReadOptions
from hogbatch.data.skipped import NONE_SKIPPED, LineError, SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.text import TextBlock, TextFile, blocks, number
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget
from tests.support.pairs import pairs
from tests.support.reading import packed

NAMES = ["a.svm", "a.svm.gz"]
FORTY = b"1\n2\n" * 20


class Part:
    """Lines with their line numbers."""

    def __init__(self, lines, skipped=NONE_SKIPPED):
        self.lines, self.skipped, self.size = lines, skipped, (len(lines),)


class Plain:
    """A line format in which "odd" is unusual and "bad" is malformed; it remembers its calls."""

    def __init__(self, row_bytes=8):
        self.row_bytes = row_bytes
        self.parsed, self.by_line = [], []

    def max_counts(self, text):
        return (text.count(b"\n"),)

    def byte_size(self, counts):
        return self.row_bytes * counts[0]

    def parse(self, block):
        self.parsed.append(block)
        if b"bad" in block.text or b"odd" in block.text:
            return None
        return Part(list(enumerate(block.text.split(b"\n")[:-1], block.first_line)))

    def parse_lines(self, block):
        lines = list(enumerate(block.text.split(b"\n")[:-1], block.first_line))
        self.by_line += [content for _, content in lines]
        bad = [line for line, content in lines if content == b"bad"]
        return Part(
            [pair for pair in lines if pair[1] != b"bad"],
            SkippedLines.of(bad, lambda line: LineError(0, "this is bad")),
        )


@pytest.fixture
def small(monkeypatch):
    """Set the size of blocks."""
    return lambda size: monkeypatch.setattr(text, "BLOCK_BYTES", size)


@pytest.fixture
def opened(write):
    """Write a file, compressed if its name says so, and open it."""

    def opened(content, name="a.svm", **options):
        return TextFile(Source(write(name, packed(name, content))), ReadOptions(**options))

    return opened


def parse(file, line_format=None, header=0):
    """Parse a file after its header: lines with their numbers, and skipped lines."""
    rest = TextBlock(1 + header, file.first.text.split(b"\n", header)[header])
    parts, skipped = file.parse(rest, line_format or Plain())
    return [pair for part in parts for pair in part.lines], skipped


@pytest.mark.parametrize("name", NAMES)
def test_blocks_end_with_lines_that_may_be_longer_and_number_them(write, small, name):
    small(4)
    content = b"1\n22\n" + b"3" * 50 + b"\n4"
    found, read = list(blocks(Source(write(name, packed(name, content))))), b""
    for block in found:
        assert block.first_line == 1 + read.count(b"\n") and block.text.endswith(b"\n")
        read += block.text
    assert read == content + b"\n" and len(found) >= 3


@pairs(
    threads=[None, 1, 3], header=[0, 1], end=[b"", b"\n"], mark=[b"", b"\xef\xbb\xbf"], name=NAMES
)
def test_parts_come_in_order_and_know_their_lines(opened, small, name, mark, end, header, threads):
    small(16)
    lines = [b"%d" % (i * i) for i in range(100)] + [b"x" * 40, b"", b"y"]
    file, form = opened(mark + b"\n".join(lines) + end, name, threads=threads), Plain()
    found, _ = parse(file, form, header)
    assert found == list(enumerate(lines, 1))[header:]
    assert len(form.parsed) > 5 and form.by_line == []


@pairs(name=NAMES, piece=[1, 9, 1 << 15])
def test_only_pieces_around_what_is_unusual_go_line_by_line(
    opened, small, monkeypatch, name, piece
):
    small(40)
    monkeypatch.setattr(text, "PIECE_BYTES", piece)
    lines = [b"%d" % i for i in range(60)]
    for line, content in ((7, b"bad"), (20, b"odd"), (21, b"bad"), (59, b"bad")):
        lines[line] = content
    form = Plain()
    found, skipped = parse(opened(b"\n".join(lines), name, threads=2, bad_lines=0.05), form)
    assert found == [(n, content) for n, content in enumerate(lines, 1) if content != b"bad"]
    assert [mistake.line for mistake in skipped.first] == [8, 22, 60]
    assert (len(form.by_line) <= 8) == (piece < 40)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_mistake_ends_reading_where_none_is_allowed(opened, small, name):
    small(4)
    form = Plain()
    file = opened(b"1\n2\n3\nbad\n" + b"bad\n" * 50 + b"1\n" * 500, name, threads=1)
    with pytest.raises(DataError, match=r":4:1: this is bad$"):
        parse(file, form)
    assert len(form.parsed) <= 2 * text.MAX_WAITING


def truncate(path):
    os.truncate(path, os.path.getsize(path) // 2)


def append(path):
    with path.open("ab") as file:
        file.write(b"more\n")


def replace_it(path):
    path.with_name("new").write_bytes(path.read_bytes())
    os.replace(path.with_name("new"), path)


def overwrite(path):
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, (1, 1))  # its clock may not have ticked since


@pairs(
    change={each.__name__: each for each in (truncate, append, replace_it, overwrite, os.unlink)},
    block=[4, 1 << 20],
    name=NAMES,
)
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path, opened, small, name, block, change
):
    small(block)
    file = opened(FORTY, name)
    change(tmp_path / name)
    with pytest.raises(DataError, match=r"a\.svm(\.gz)? changed while it was read"):
        parse(file)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("content", "line"), [(b"1" * 99, 1), (b"1\n" * 30 + b"x" * 60, 31)])
def test_a_line_without_an_end_is_an_error(opened, small, monkeypatch, content, line, name):
    small(16)
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 40)
    with pytest.raises(DataError, match=rf"{name}:{line}: expected lines of up to"):
        parse(opened(content, name))
    assert len(parse(opened(b"1\n\n" + b"x" * 39, name))[0]) == 3


@pairs(block=[1, 7, 1 << 20], name=NAMES)
def test_lines_may_end_in_returns_alone(opened, small, block, name):
    small(block)
    for content in (b"1\r22\r\r3", b"\xef\xbb\xbf1\r22\r\r3\r"):
        found, _ = parse(opened(content, name, threads=1))
        assert found == [(1, b"1"), (2, b"22"), (3, b""), (4, b"3")]


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_checked_before_it_is_taken(opened, small, monkeypatch, name):
    small(8)
    monkeypatch.setattr(budget, "free_memory", lambda: 50 * 10**9)
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    form = Plain(row_bytes=10**9)
    match = r"GB of free memory for the rows of .*a\.svm.*; got 50 GB"
    with pytest.raises(UsageError, match=match):
        parse(opened(b"1\n2\n" * 49, name, threads=1), form)
    assert len(form.parsed) <= 25


def test_lines_beyond_memory_are_one_sentence(opened, monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 10**7)
    with pytest.raises(UsageError, match=r"MB of free memory for the rows of .*a\.svm; got 10 MB"):
        opened(b"1" * (text.MIN_CHECKED_BYTES + 1))


@pytest.mark.parametrize(
    "token",
    ["", "abc", "nan", "-Infinity", "1e400", "3.4028236e38", "1_0", "٣", "0x1", "1e", "x" * 1000],
)
def test_what_is_no_finite_float32_is_no_number(token):
    with pytest.raises(ValueError, match="expected a") as caught:
        number(token)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("token", ["0", "-0", "+1", "1.", ".5", "1e-400", "3.4028235e38", "1E+2"])
def test_ways_to_write_a_number(token):
    assert number(token) == float(token)
    assert np.isfinite(np.float32(number(token)))
