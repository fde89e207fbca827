import gzip

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.text import Block, blocks, number, plain_numbers
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
    assert plain_numbers(token.encode() + b"\n", b"\n") is None


@pytest.mark.parametrize("token", ["0", "-0", "+1", "1.", ".5", "1e-400", "3.4028235e38", "1E+2"])
def test_numbers_are_read_alike_one_by_one_and_at_once(token):
    many = plain_numbers(token.encode() + b"\n", b"\n")
    assert many.tolist() == [number(token)] == [float(token)]
    assert np.isfinite(many.astype(np.float32)).all()


def test_a_long_token_is_shortened_in_a_message():
    with pytest.raises(ValueError, match=r"got 'x{37}\.\.\.'$"):
        number("x" * 1000)
