import bz2
import gzip
import lzma

import numpy as np
import pytest

from hogbatch.data import decompress, text
from hogbatch.data.source import Source
from hogbatch.data.text import TextBlock, blocks
from hogbatch.errors import DataError


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf1,2\n")
    assert list(blocks(Source(path))) == [TextBlock(1, b"1,2\n")]


@pytest.mark.parametrize("at_once", [1, 5, 1 << 20])
def test_a_gzip_file_may_have_several_members_and_zeros_after_each(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(decompress, "COMPRESSED_CHUNK_BYTES", at_once)
    path = tmp_path / "a.svm.gz"
    path.write_bytes(gzip.compress(b"1\n2") + gzip.compress(b"3\n") + bytes(9) + gzip.compress(b""))
    assert b"".join(block.text for block in blocks(Source(path))) == b"1\n23\n"


def test_a_return_before_a_newline_is_half_of_a_line_end(tmp_path, monkeypatch):
    monkeypatch.setattr(decompress, "FIRST_BYTES", 4)
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    path = tmp_path / "a.svm"
    path.write_bytes(b"123\r\n4\r\n")
    assert b"".join(each.text for each in blocks(Source(path))) == b"123\r\n4\r\n"


PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("how", PACKERS)
@pytest.mark.parametrize("name", ["a.svm", "a.csv.gz", "a"])
@pytest.mark.parametrize("block", [5, 1 << 20])
def test_compression_is_told_by_the_content(tmp_path, monkeypatch, how, name, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    monkeypatch.setattr(decompress, "COMPRESSED_CHUNK_BYTES", block)
    path, pack = tmp_path / name, PACKERS[how]
    content = b"".join(b"%d:%d\n" % (i, i * i) for i in range(2000))
    path.write_bytes(pack(content) + pack(b"") + pack(b"x\n"))
    assert b"".join(each.text for each in blocks(Source(path))) == content + b"x\n"
    path.write_bytes(pack(content)[:-9])
    with pytest.raises(DataError, match=f"the {how} data is truncated"):
        list(blocks(Source(path)))
    whole = pack(content)
    path.write_bytes(whole[:60] + bytes(40) + whole[100:])
    with pytest.raises(DataError, match=f"the {how} data is damaged"):
        list(blocks(Source(path)))


def test_plain_text_may_be_named_gz(tmp_path):
    path = tmp_path / "a.svm.gz"
    path.write_bytes(b"1 1:2\n")
    assert list(blocks(Source(path))) == [TextBlock(1, b"1 1:2\n")]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda whole: whole[:-12], "is truncated"),
        (lambda whole: whole[:40] + b"\xff" * 20 + whole[60:], "is damaged"),
        (lambda whole: whole[:-8] + bytes(8), "is damaged"),  # checksum
    ],
    ids=["truncated", "corrupt", "wrong checksum"],
)
def test_damaged_gzip_data_is_a_data_error(tmp_path, damage, complaint):
    path = tmp_path / "a.svm.gz"
    numbers = np.random.default_rng(1).integers(0, 9, 500)
    path.write_bytes(damage(gzip.compress("\n".join(map(str, numbers)).encode())))
    with pytest.raises(DataError, match=complaint):
        list(blocks(Source(path)))
