import gzip
import io
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save

from hogbatch.data.signatures import FIRST_BYTES, not_text
from tests.support.reading import read_error

TABLE = "a,b,y\n1,2,0\n3,4,1\n"


def archive(*names):
    """The bytes of a zip archive of empty files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return file.getvalue()


NOISE = np.random.default_rng(0).bytes(5000)
FILES = {  # content, and what the sentence says of it
    "a pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02e.", "never loads"),
    "an old pickle": (b"(lp0\nI1\naI2\na.", "a pickle; hogbatch never loads pickles"),
    "a pickled array": (b"cnumpy.core.multiarray\n_reconstruct\np0\n(", "a pickle"),
    "npy": (b"\x93NUMPY\x01\0v\0{", "a single NumPy array (.npy); save the arrays"),
    "gzip of Parquet": (gzip.compress(b"PAR1\x15\x04\x15"), "a Parquet file; decompress"),
    "gzip of Arrow": (gzip.compress(b"ARROW1\0\0"), "an Arrow or Feather file"),
    "HDF5": (b"\x89HDF\r\n\x1a\n\0\0", "an HDF5 file"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(9), "an old Excel"),
    "xlsx": (archive("[Content_Types].xml", "xl/workbook.xml"), "an Excel file (.xlsx); export"),
    "zip": (archive("a.csv"), "a zip archive without NumPy arrays; decompress"),
    "safetensors": (save({"a": np.eye(2)}), "a safetensors file; is it a model?"),
    "SQLite": (b"SQLite format 3\0\x10", "an SQLite database; export the table as CSV"),
    "Zstandard": (b"\x28\xb5\x2f\xfd\x04\x58", "Zstandard"),
    "gzip of gzip": (gzip.compress(gzip.compress(b"1,2\n")), "gzip data of gzip data"),
    "tar": (TABLE.encode().ljust(257, b"\0") + b"ustar\x0000", "a tar archive"),
    "HTML": (b"<!DOCTYPE html>\n<html>\n", "an HTML page; was the download refused?"),
    "UTF-16": (TABLE.encode("utf-16"), "UTF-16 text; convert it, e.g. with iconv -f UTF-16 -t"),
    "UTF-16LE": (TABLE.encode("utf-16-le"), "iconv -f UTF-16LE -t"),
    "UTF-16BE": (TABLE.encode("utf-16-be"), "iconv -f UTF-16BE -t"),
    "noise": (NOISE, "binary data of an unknown type; hogbatch reads"),
    "zeros": (bytes(100), "zero bytes only; is the file damaged?"),
    "blanks": (b" \n\t\n\r\n", "only blanks; expected rows"),
}


@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_text_is_named(write, kind):
    content, what = FILES[kind]
    for name in ("a.csv", "a.svm.gz", "a", "a.npz"):
        found = read_error(write(name, content))
        assert f"{name}: expected text or an .npz archive; got " in found and found.isprintable()
        gzip_as_archive = name == "a.npz" and kind.startswith("gzip")
        assert ("gzip data; decompress it first" if gzip_as_archive else what) in found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        "größe,naïve\n1,2\n".encode("latin-1"),
        b"color,type\nr,p1\n",
        b"PK,a,b\n1,2,3\n",
        b"BZhour,1\n",
        b"1,2\x1a",
        b"\0" + b"1 1:1\n" * 200,
        b" " * FIRST_BYTES,
    ],
)
def test_what_may_be_text_passes(content):
    assert not_text(content[:FIRST_BYTES]) is None
