import gzip
import os
import threading

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.raw import Options
from hogbatch.data.skipped import NOTHING, Misplaced, Skipped
from hogbatch.data.text import Block, TextFile, blocks, number
from hogbatch.errors import DataError


def test_blocks_end_with_lines_and_number_them(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n22\n333333\n4")
    assert list(blocks(path)) == [
        Block(1, b"1\n"),
        Block(2, b"22\n"),
        Block(3, b"333333\n"),
        Block(4, b"4\n"),
    ]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf1,2\n")
    assert list(blocks(path)) == [Block(1, b"1,2\n")]


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_a_line_may_be_longer_than_a_block(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / name
    content = b"1\n" + b"2" * 50 + b"\n3\n"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(blocks(path)) == [Block(1, b"1\n"), Block(2, b"2" * 50 + b"\n3\n")]


@pytest.mark.parametrize("at_once", [1, 5, 1 << 20])
def test_a_gzip_file_may_have_several_members_and_zeros_after_each(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(text, "GZIP_BYTES", at_once)
    path = tmp_path / "a.svm.gz"
    path.write_bytes(gzip.compress(b"1\n2") + gzip.compress(b"3\n") + bytes(9) + gzip.compress(b""))
    assert b"".join(block.text for block in blocks(path)) == b"1\n23\n"


NEWLINE = b"\n"


class Part:
    """Lines with their numbers."""

    def __init__(self, lines, skipped=NOTHING):
        self.lines, self.skipped, self.size = lines, skipped, (len(lines),)


class Plain:
    """A format of lines, where "odd" is unusual and "bad" a mistake."""

    def count(self, text):
        return (text.count(b"\n"),)

    def reserve(self, counts):
        return [None] * counts[0]

    def parse(self, block, room, begin, end):
        if b"bad" in block.text or b"odd" in block.text:
            return None
        room[begin[0] : end[0]] = block.text.split(b"\n")[:-1]
        return Part(list(enumerate(room[begin[0] : end[0]], block.first_line)))

    def parse_lines(self, block):
        lines = list(enumerate(block.text.split(b"\n")[:-1], block.first_line))
        bad = [line for line, content in lines if content == b"bad"]
        return Part(
            [pair for pair in lines if pair[1] != b"bad"],
            Skipped.of(bad, lambda line: Misplaced(0, "this is bad")),
        )


def parse(path, header, threads, bad_lines=0.0):
    file = TextFile(path, Options(threads=threads, bad_lines=bad_lines))
    rest = Block(1 + header, file.first.text.split(b"\n", header)[header])
    return file.parse(rest, Plain())


@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("header", [0, 1])
@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_parts_come_in_order_and_know_their_lines(
    tmp_path, monkeypatch, name, mark, end, header, threads
):
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    lines = [b"%d" % (i * i) for i in range(100)] + [b"x" * 40, b"", b"y"]
    content = mark + b"\n".join(lines) + end
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    parts, room, _ = parse(path, header, threads)
    assert len(parts) > 5
    assert [pair for part in parts for pair in part.lines] == list(enumerate(lines, 1))[header:]
    assert room == (None if name.endswith(".gz") else lines[header:])


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

    file = TextFile(path, Options(threads=2, bad_lines=0.05))
    parts, _, skipped = file.parse(file.first, Watched())
    kept = [(line, content) for line, content in enumerate(lines, 1) if content != b"bad"]
    assert [pair for part in parts for pair in part.lines] == kept
    assert [mistake.where("") for mistake in skipped.first] == [
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
        def parse(self, block, room, begin, end):
            read.append(block)
            return super().parse(block, room, begin, end)

    file = TextFile(path, Options(threads=1))
    with pytest.raises(DataError, match=r"a\.svm\.gz:1:1: this is bad$"):
        file.parse(file.first, Watched())
    assert len(read) <= 2 * text.MOST_WAITING


def test_a_file_of_one_block_goes_line_by_line(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n3\n")
    parts, room, _ = parse(path, 1, None)
    assert (len(parts), room) == (1, None)


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

    file = TextFile(path)
    change(path)
    with pytest.raises(DataError, match=r"a\.svm(\.gz)? changed while it was read"):
        file.parse(file.first, Plain())


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n" * 20)

    class Shrinks(Plain):
        def reserve(self, counts):
            truncate(path)
            return super().reserve(counts)

    file = TextFile(path, Options(threads=1))
    with pytest.raises(DataError, match=r"a\.svm changed while it was read"):
        file.parse(file.first, Shrinks())


def test_a_pipe_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"1\n2\n3\n4\n",))
    writer.start()
    parts, room, _ = parse(path, 0, 2)
    writer.join()
    assert (sum(part.size[0] for part in parts), room) == (4, None)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such file: .*gone\.svm$"):
        list(blocks(tmp_path / "gone.svm"))


@pytest.mark.parametrize("name", ["folder", "folder.gz"])
def test_a_directory_is_no_data(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        list(blocks(tmp_path / name))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda whole: whole[:-12], "ends early"),
        (lambda whole: whole[:40] + b"\xff" * 20 + whole[60:], "not intact"),
        (lambda whole: whole[:-8] + bytes(8), "not intact"),  # checksum
        (lambda whole: b"1 1:2\n", "not intact"),
    ],
    ids=["truncated", "corrupt", "wrong checksum", "no gzip at all"],
)
def test_damaged_gzip_data_is_a_data_error(tmp_path, damage, complaint):
    path = tmp_path / "a.svm.gz"
    numbers = np.random.default_rng(1).integers(0, 9, 500)
    path.write_bytes(damage(gzip.compress("\n".join(map(str, numbers)).encode())))
    with pytest.raises(DataError, match=complaint):
        list(blocks(path))


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
