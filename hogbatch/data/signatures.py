"""What a file is by its first bytes, where it is neither text nor a NumPy archive."""

import re
from typing import Final, NamedTuple

FIRST_BYTES: Final = 1 << 16  # that are examined
CONTROLS: Final = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1a"})
FEW: Final = 512  # bytes of which too little can be told,
FRACTION: Final = 0.05  # else no text has as large a share of control characters

PACKED: Final = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"BZh[1-9][1\x17]"), "bzip2"),
    (re.compile(rb"\xfd7zXZ\0"), "xz"),
)
LONGEST_SIGN: Final = 6  # bytes, of those

ARRAYS: Final = "save the arrays with numpy.savez(path, X=X, y=y)"
TABLE: Final = "export the table as CSV"
UNPACK: Final = "decompress it first"
RECODE: Final = "convert it, e.g. with iconv -f {0} -t UTF-8"
OTHER: Final = "hogbatch reads svmlight/libsvm, XMC text, CSV and .npz"


class Kind(NamedTuple):
    """A kind of file that no reader takes."""

    start: re.Pattern[bytes]
    name: str
    advice: str


def _kind(start: bytes, name: str, advice: str) -> Kind:
    return Kind(re.compile(rb"\A(?:" + start + rb")", re.DOTALL), name, advice)


KINDS: Final = (
    _kind(rb"\x80[\x02-\x05]", "a pickle", f"hogbatch never loads pickles; {ARRAYS}"),
    _kind(
        rb"\([dl]p\d+\n|c\w+(?:\.\w+)+\n\w+\np\d+\n",
        "a pickle",
        f"hogbatch never loads pickles; {ARRAYS}",
    ),
    _kind(rb"\x93NUMPY", "a single NumPy array (.npy)", ARRAYS),
    _kind(rb"PAR1", "a Parquet file", TABLE),
    _kind(rb"ARROW1|FEA1", "an Arrow or Feather file", TABLE),
    _kind(rb"ORC", "an ORC file", TABLE),
    _kind(rb"Obj\x01", "an Avro file", TABLE),
    _kind(rb"\x89HDF\r\n\x1a\n", "an HDF5 file", ARRAYS),
    _kind(rb"MATLAB 5\.0 MAT-file", "a MATLAB file", ARRAYS),
    _kind(rb"SQLite format 3\0", "an SQLite database", TABLE),
    _kind(rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel or Word file", TABLE),
    _kind(rb".{5}\0\0\0\{\"", "a safetensors file", "is it a model? DATA is a file of rows"),
    _kind(rb"\x1f\x8b", "gzip data", UNPACK),
    _kind(rb"BZh[1-9]1AY&SY", "bzip2 data", UNPACK),
    _kind(rb"\xfd7zXZ\0", "xz data", UNPACK),
    _kind(rb"\x28\xb5\x2f\xfd", "Zstandard data (.zst)", UNPACK),
    _kind(rb"\x04\x22\x4d\x18", "LZ4 data", UNPACK),
    _kind(rb"\x1f\x9d", "data of compress (.Z)", UNPACK),
    _kind(rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK),
    _kind(rb"Rar!\x1a\x07", "a RAR archive", UNPACK),
    _kind(rb"PK(?:\x03\x04|\x05\x06)", "a zip archive", UNPACK),
    _kind(rb".{257}ustar", "a tar archive", "extract it first"),
    _kind(rb"%PDF-", "a PDF document", OTHER),
    _kind(rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a", "an image", OTHER),
    _kind(rb"\x7fELF", "a program (ELF)", OTHER),
    _kind(rb"(?i:<!doctype html|<html)", "an HTML page", "was the download refused?"),
    _kind(rb"version https://git-lfs", "a Git LFS pointer", "fetch the file with git lfs pull"),
    _kind(rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32 text", RECODE.format("UTF-32")),
    _kind(rb"(?:[\t\n\r -~]\0\0\0){2,}", "UTF-32 text", RECODE.format("UTF-32LE")),
    _kind(rb"(?:\0\0\0[\t\n\r -~]){2,}", "UTF-32 text", RECODE.format("UTF-32BE")),
    _kind(rb"\xff\xfe|\xfe\xff", "UTF-16 text", RECODE.format("UTF-16")),
    _kind(rb"(?:[\t\n\r -~]\0){3,}", "UTF-16 text", RECODE.format("UTF-16LE")),
    _kind(rb"(?:\0[\t\n\r -~]){3,}", "UTF-16 text", RECODE.format("UTF-16BE")),
)
OFFICE: Final = (  # a name in a zip archive that tells what it is
    ("xl/workbook.xml", "an Excel file (.xlsx)"),
    ("content.xml", "an OpenDocument file (.ods)"),
    ("word/document.xml", "a Word file (.docx)"),
)


def is_archive(start: bytes) -> bool:
    """Whether a file that starts so is a zip archive, as .npz and .xlsx are."""
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def packing(start: bytes) -> str:
    """How a file that starts so is compressed; "" if it is not."""
    return next((name for sign, name in PACKED if sign.match(start)), "")


def not_text(start: bytes) -> str | None:
    """What a file is that starts so, and what to do with it; None if it may be text.

    `start` is the whole file, if that has no more than `FIRST_BYTES`.
    """
    for kind in KINDS:
        if kind.start.match(start):
            return f"{kind.name}; {kind.advice}"
    if start and not start.strip(b"\0"):
        return "zero bytes only; is the file damaged?"
    if start and not start.strip() and len(start) < FIRST_BYTES:
        return "nothing but blanks; expected rows of numbers"
    controls = len(start) - len(start.translate(None, CONTROLS))
    if len(start) >= FEW and controls > FRACTION * len(start):
        return f"binary data of an unknown kind; {OTHER}"
    return None


def not_arrays(names: list[str]) -> str | None:
    """What a zip archive of these files is; None if there are arrays of NumPy among them."""
    if not names or any(name.endswith(".npy") for name in names):
        return None
    for name, what in OFFICE:
        if name in names:
            return f"{what}; {TABLE}"
    return f"a zip archive without arrays of NumPy; {UNPACK}"
