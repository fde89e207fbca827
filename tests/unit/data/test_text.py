import gzip
import os
import threading

import numpy as np
import pytest

from hogbatch.data import text
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


class Plain:
    """A format whose parts are the lines themselves; compiled or not, it tells which way."""

    def count(self, text):
        return (text.count(b"\n"),)

    def reserve(self, counts):
        return [None] * counts[0]

    def parse(self, block, room, begin, end):
        if b"bad" in block.text:
            before = block.text[: block.text.index(b"bad")]
            raise DataError(f"line {block.first_line + before.count(NEWLINE)}")
        room[begin[0] : end[0]] = block.text.split(b"\n")[:-1]
        return [(block.first_line + i, line) for i, line in enumerate(room[begin[0] : end[0]])]

    def parse_lines(self, block):
        return "line by line"


def parse(path, header, threads):
    file = TextFile(path)
    rest = Block(1 + header, file.first.text.split(b"\n", header)[header])
    return file.parse(rest, Plain(), threads)


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
    parts, room = parse(path, header, threads)
    assert len(parts) > 5
    assert [pair for part in parts for pair in part] == list(enumerate(lines, 1))[header:]
    assert room == (None if name.endswith(".gz") else lines[header:])


@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_the_first_of_several_mistakes_is_reported(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    content = b"1\n2\n3\nbad\n" + b"bad\n" * 50
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match=r"line 4$"):
        parse(path, 0, 2)


def test_a_file_of_one_block_goes_line_by_line(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n3\n")
    assert parse(path, 1, None) == (["line by line"], None)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    path.write_bytes(b"1\n2\n" * 20)

    class Shrinks(Plain):
        def reserve(self, counts):
            path.write_bytes(b"1\n2\n")
            return super().reserve(counts)

    file = TextFile(path)
    with pytest.raises(DataError, match=r"a\.svm changed while it was read"):
        file.parse(file.first, Shrinks(), 1)


def test_a_pipe_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"1\n2\n3\n4\n",))
    writer.start()
    parts, room = parse(path, 0, 2)
    writer.join()
    assert (sum(map(len, parts)), room) == (4, None)


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
