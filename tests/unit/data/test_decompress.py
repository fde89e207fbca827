import bz2
import gzip
import lzma

import pytest

from hogbatch.data import decompress, text
from hogbatch.data.source import Source
from hogbatch.data.text import blocks
from hogbatch.errors import DataError
from tests.support.pairs import pairs

PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.fixture
def text_of(write):
    """Write a file and return its text, as blocks contain it."""
    return lambda name, content: b"".join(
        each.text for each in blocks(Source(write(name, content)))
    )


def test_a_byte_order_mark_is_no_part_of_the_text_and_plain_text_may_be_named_gz(text_of):
    assert text_of("a.svm.gz", b"\xef\xbb\xbf1,2\n") == b"1,2\n"


def test_a_return_before_a_newline_is_half_of_a_line_end(text_of, monkeypatch):
    monkeypatch.setattr(decompress, "FIRST_BYTES", 4)
    monkeypatch.setattr(text, "BLOCK_BYTES", 4)
    assert text_of("a.svm", b"123\r\n4\r\n") == b"123\r\n4\r\n"


@pytest.mark.parametrize("at_once", [1, 5, 1 << 20])
def test_a_gzip_file_may_have_several_members_and_zeros_after_each(text_of, monkeypatch, at_once):
    monkeypatch.setattr(text, "BLOCK_BYTES", at_once)
    monkeypatch.setattr(decompress, "COMPRESSED_CHUNK_BYTES", at_once)
    pack, long = gzip.compress, b"3\n" * 5000  # few bytes make more text than fits into a chunk
    content = pack(b"1\n2") + pack(long) + bytes(9) + pack(b"")
    assert text_of("a.svm.gz", content) == b"1\n2" + long


@pairs(how=list(PACKERS), name=["a.csv.gz", "a"], block=[5, 1 << 20])
def test_compression_is_detected_from_the_content_and_damage_is_named(
    text_of, monkeypatch, how, name, block
):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    monkeypatch.setattr(decompress, "COMPRESSED_CHUNK_BYTES", block)
    pack = PACKERS[how]
    content = b"".join(b"%d:%d\n" % (i, i * i) for i in range(2000))
    whole = pack(content)
    assert text_of(name, whole + pack(b"") + pack(b"x\n")) == content + b"x\n"
    with pytest.raises(DataError, match=f"the {how} data is truncated"):
        text_of(name, whole[:-9])
    damages = (whole[:60] + bytes(40) + whole[100:], whole[:-8] + bytes(8))  # or a checksum
    for damaged in (*damages, whole + b"?" + pack(b"x\n")):  # or the start of a member
        with pytest.raises(DataError, match=f"the {how} data is damaged"):
            text_of(name, damaged)
