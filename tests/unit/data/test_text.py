import gzip
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


def test_blocks_end_with_lines_and_number_them(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n22\n333333\n4")
    assert list(blocks(Source(path))) == [
        TextBlock(1, b"1\n"),
        TextBlock(2, b"22\n"),
        TextBlock(3, b"333333\n"),
        TextBlock(4, b"4\n"),
    ]


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_a_line_may_be_longer_than_a_block(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / name
    content = b"1\n" + b"2" * 50 + b"\n3\n"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(blocks(Source(path))) == [TextBlock(1, b"1\n"), TextBlock(2, b"2" * 50 + b"\n3\n")]


NEWLINE = b"\n"


class Part:
    """Lines with their line numbers."""

    def __init__(self, lines, skipped=NONE_SKIPPED):
        self.lines, self.skipped, self.size = lines, skipped, (len(lines),)


class Plain:
    """A line format in which "odd" is unusual and "bad" is malformed."""

    def max_counts(self, text):
        return (text.count(b"\n"),)

    def byte_size(self, counts):
        return 8 * counts[0]

    def allocate(self, counts):
        return [None] * counts[0]

    def parse(self, block, buffers, begin, end):
        if b"bad" in block.text or b"odd" in block.text:
            return None
        buffers[begin[0] : end[0]] = block.text.split(b"\n")[:-1]
        return Part(list(enumerate(buffers[begin[0] : end[0]], block.first_line)))

    def parse_lines(self, block):
        lines = list(enumerate(block.text.split(b"\n")[:-1], block.first_line))
        bad = [line for line, content in lines if content == b"bad"]
        return Part(
            [pair for pair in lines if pair[1] != b"bad"],
            SkippedLines.of(bad, lambda line: LineError(0, "this is bad")),
        )


def parse(path, header, threads, bad_lines=0.0):
    file = TextFile(Source(path), ReadOptions(threads=threads, bad_lines=bad_lines))
    rest = TextBlock(1 + header, file.first.text.split(b"\n", header)[header])
    return file.parse(rest, Plain())


@pairs(
    threads=[None, 1, 3],
    header=[0, 1],
    end=[b"", b"\n"],
    mark=[b"", b"\xef\xbb\xbf"],
    name=["a.svm", "a.svm.gz"],
)
def test_parts_come_in_order_and_know_their_lines(
    tmp_path, monkeypatch, name, mark, end, header, threads
):
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    lines = [b"%d" % (i * i) for i in range(100)] + [b"x" * 40, b"", b"y"]
    content = mark + b"\n".join(lines) + end
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    parts, buffers, _ = parse(path, header, threads)
    assert len(parts) > 5
    assert [pair for part in parts for pair in part.lines] == list(enumerate(lines, 1))[header:]
    assert buffers == (None if name.endswith(".gz") else lines[header:])


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_the_first_of_several_mistakes_is_reported(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    content = b"1\n2\n3\nbad\n" + b"bad\n" * 50
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match=r":4:1: this is bad$"):
        parse(path, 0, 2)


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
@pytest.mark.parametrize("piece", [1, 9, 1 << 15])
def test_only_pieces_around_what_is_unusual_go_line_by_line(tmp_path, monkeypatch, name, piece):
    monkeypatch.setattr(text, "BLOCK_BYTES", 40)
    monkeypatch.setattr(text, "PIECE_BYTES", piece)
    lines = [b"%d" % i for i in range(60)]
    for line, content in ((7, b"bad"), (20, b"odd"), (21, b"bad"), (59, b"bad")):
        lines[line] = content
    content = b"\n".join(lines)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    by_line = []

    class Watched(Plain):
        def parse_lines(self, block):
            by_line.extend(block.text.split(b"\n")[:-1])
            return super().parse_lines(block)

    file = TextFile(Source(path), ReadOptions(threads=2, bad_lines=0.05))
    parts, _, skipped = file.parse(file.first, Watched())
    kept = [(line, content) for line, content in enumerate(lines, 1) if content != b"bad"]
    assert [pair for part in parts for pair in part.lines] == kept
    assert [mistake.describe("") for mistake in skipped.first] == [
        f":{line}:1: this is bad" for line in (8, 22, 60)
    ]
    assert (len(by_line) <= 8) == (piece < 40)


@pytest.mark.parametrize("block", [40, 1 << 20])
@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_more_bad_lines_than_allowed_are_an_error(tmp_path, monkeypatch, name, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    content = b"1\nbad\n" * 50
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert parse(path, 0, 2, bad_lines=0.5).skipped.total == 50
    with pytest.raises(DataError, match=r"50 of 100 lines \(50\.00%\).* --bad-lines 0\.4 allows: "):
        parse(path, 0, 2, bad_lines=0.4)


def test_where_no_bad_line_is_allowed_reading_ends_soon_after_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm.gz"
    path.write_bytes(gzip.compress(b"bad\n" + b"1\n" * 500))
    read = []

    class Watched(Plain):
        def parse(self, block, buffers, begin, end):
            read.append(block)
            return super().parse(block, buffers, begin, end)

    file = TextFile(Source(path), ReadOptions(threads=1))
    with pytest.raises(DataError, match=r"a\.svm\.gz:1:1: this is bad$"):
        file.parse(file.first, Watched())
    assert len(read) <= 2 * text.MAX_WAITING


def test_a_file_of_one_block_goes_line_by_line(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n3\n")
    parts, buffers, _ = parse(path, 1, None)
    assert (len(parts), buffers) == (1, None)


def truncate(path):
    os.truncate(path, os.path.getsize(path) // 2)


def append(path):
    with path.open("ab") as file:
        file.write(b"more\n")


def replace_it(path):
    path.with_name("new").write_bytes(path.read_bytes())
    os.replace(path.with_name("new"), path)


def overwrite(path):
    content = path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, (1, 1))  # its clock may not have ticked since


CHANGES = [truncate, append, replace_it, overwrite, os.unlink]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("block", [4, 1 << 20])
@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path, monkeypatch, name, block, change
):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    path = tmp_path / name
    content = b"1\n2\n" * 20
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    file = TextFile(Source(path))
    change(path)
    with pytest.raises(DataError, match=r"a\.svm(\.gz)? changed while it was read"):
        file.parse(file.first, Plain())


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n" * 20)

    class Shrinks(Plain):
        def allocate(self, counts):
            truncate(path)
            return super().allocate(counts)

    file = TextFile(Source(path), ReadOptions(threads=1))
    with pytest.raises(DataError, match=r"a\.svm changed while it was read"):
        file.parse(file.first, Shrinks())


def test_a_line_without_an_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 40)
    path = tmp_path / "a.svm"
    for content, line in (
        (b"1" * 99, 1),
        (b"1\n" * 30 + b"x" * 60, 31),
        (b"1\n\n" + b"x" * 39, None),
    ):
        for whole in (content, gzip.compress(content)):
            path.write_bytes(whole)
            if line is None:
                assert sum(len(block.text) for block in blocks(Source(path))) == len(content) + 1
                continue
            with pytest.raises(DataError, match=rf"a\.svm:{line}: expected lines of up to"):
                list(blocks(Source(path)))
            file = None
            with pytest.raises(DataError, match=rf"a\.svm:{line}: expected lines of up to"):
                file = TextFile(Source(path))
                file.parse(file.first, Plain())


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_lines_may_end_in_returns_alone(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    path = tmp_path / "a.svm"
    for content in (b"1\r22\r\r3", b"1\r22\r\r3\r", b"\xef\xbb\xbf1\r22\r\r3\r"):
        for whole in (content, gzip.compress(content)):
            path.write_bytes(whole)
            assert b"".join(each.text for each in blocks(Source(path))) == b"1\n22\n\n3\n"
            parts, buffers, _ = parse(path, 0, 1)
            assert [pair for part in parts for pair in part.lines] == list(
                enumerate([b"1", b"22", b"", b"3"], 1)
            )
            assert buffers is None


class Heavy(Plain):
    """A line format whose rows need much memory."""

    def byte_size(self, counts):
        return 10**9 * counts[0]


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_memory_is_checked_before_it_is_taken(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "BLOCK_BYTES", 8)
    monkeypatch.setattr(budget, "free_memory", lambda: 50 * 10**9)
    monkeypatch.setattr(budget, "memory_quota", lambda: None)
    reserved = []

    class Watched(Heavy):
        def allocate(self, counts):
            reserved.append(counts[0])
            return super().allocate(counts)

    path = tmp_path / name
    content = b"1\n2\n" * 49
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    file = TextFile(Source(path), ReadOptions(threads=1))
    with pytest.raises(
        UsageError, match=r"GB of free memory for the rows of .*a\.svm.*; got 50 GB"
    ):
        file.parse(file.first, Watched())
    assert sum(reserved) <= 50


def test_room_that_cannot_be_had_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 8)

    class Refused(Plain):
        def allocate(self, counts):
            raise MemoryError

    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n" * 49)
    file = TextFile(Source(path))
    with pytest.raises(UsageError, match=r"of free memory for the rows of .*a\.svm; got"):
        file.parse(file.first, Refused())


def test_a_long_line_is_not_taken_apart_without_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 10**7)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1" * (text.MIN_CHECKED_BYTES + 1))
    with pytest.raises(UsageError, match=r"MB of free memory for the rows of .*a\.svm; got 10 MB"):
        TextFile(Source(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such file: .*gone\.svm$"):
        list(blocks(Source(tmp_path / "gone.svm")))


@pytest.mark.parametrize("name", ["folder", "folder.gz"])
def test_a_directory_is_no_data(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        list(blocks(Source(tmp_path / name)))


@pytest.mark.parametrize(
    "token",
    ["", "abc", "nan", "inf", "-Infinity", "1e400", "3.4028236e38", "1_0", "٣", "0x1", "1e"],
)
def test_what_is_no_finite_float32_is_no_number(token):
    with pytest.raises(ValueError, match="expected a"):
        number(token)


@pytest.mark.parametrize("token", ["0", "-0", "+1", "1.", ".5", "1e-400", "3.4028235e38", "1E+2"])
def test_ways_to_write_a_number(token):
    assert number(token) == float(token)
    assert np.isfinite(np.float32(number(token)))


def test_a_long_token_is_shortened_in_a_message():
    with pytest.raises(ValueError, match=r"got 'x{37}\.\.\.'$"):
        number("x" * 1000)
