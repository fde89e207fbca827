"""Detection of the file type from the first bytes, for files that no reader accepts."""

import re
from typing import Final, NamedTuple

FIRST_BYTES: Final = 1 << 16  # number of bytes that are examined
CONTROLS: Final = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1a"})
MIN_BINARY_BYTES: Final = 512  # shorter files are not classified as binary
MAX_CONTROL_FRACTION: Final = 0.05  # of control characters in text

COMPRESSIONS: Final = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"BZh[1-9][1\x17]"), "bzip2"),
    (re.compile(rb"\xfd7zXZ\0"), "xz"),
)
MAX_MAGIC_BYTES: Final = 6  # length of the longest of these

PARQUET: Final = b"PAR1"
ARROW: Final = b"ARROW1"  # also of Feather version 2

SAVE_ARRAYS: Final = "save the arrays with numpy.savez(path, X=X, y=y)"
EXPORT_CSV: Final = "export the table as CSV"
UNPACK: Final = "decompress it first"
RECODE: Final = "convert it, e.g. with iconv -f {0} -t UTF-8"
SUPPORTED: Final = (
    "hogbatch reads svmlight/libsvm, XMC text, CSV, Parquet, Arrow, Feather, .npz and .ts"
)


class FileSignature(NamedTuple):
    """The signature of a type of file that no reader accepts."""

    start: re.Pattern[bytes]
    name: str
    advice: str


def _signature(start: bytes, name: str, advice: str) -> FileSignature:
    return FileSignature(re.compile(rb"\A(?:" + start + rb")", re.DOTALL), name, advice)


SIGNATURES: Final = (
    _signature(
        rb"\x80[\x02-\x05]|\([dl]p\d+\n|c\w+(?:\.\w+)+\n\w+\np\d+\n",
        "a pickle",
        f"hogbatch never loads pickles; {SAVE_ARRAYS}",
    ),
    _signature(rb"\x93NUMPY", "a single NumPy array (.npy)", SAVE_ARRAYS),
    _signature(rb"PAR1", "a Parquet file", UNPACK),
    _signature(rb"ARROW1", "an Arrow or Feather file", UNPACK),
    _signature(rb"\x89HDF\r\n\x1a\n", "an HDF5 file", SAVE_ARRAYS),
    _signature(rb"SQLite format 3\0", "an SQLite database", EXPORT_CSV),
    _signature(rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel or Word file", EXPORT_CSV),
    _signature(rb".{5}\0\0\0\{\"", "a safetensors file", "is it a model? DATA is a file of rows"),
    _signature(rb"\x1f\x8b", "gzip data", UNPACK),
    _signature(rb"BZh[1-9]1AY&SY", "bzip2 data", UNPACK),
    _signature(rb"\xfd7zXZ\0", "xz data", UNPACK),
    _signature(rb"\x28\xb5\x2f\xfd", "Zstandard data (.zst)", UNPACK),
    _signature(rb"PK(?:\x03\x04|\x05\x06)", "a zip archive", UNPACK),
    _signature(rb".{257}ustar", "a tar archive", "extract it first"),
    _signature(rb"(?i:<!doctype html|<html)", "an HTML page", "was the download refused?"),
    _signature(
        rb"version https://git-lfs", "a Git LFS pointer", "fetch the file with git lfs pull"
    ),
    _signature(rb"\xff\xfe|\xfe\xff", "UTF-16 text", RECODE.format("UTF-16")),
    _signature(rb"(?:[\t\n\r -~]\0){3,}", "UTF-16 text", RECODE.format("UTF-16LE")),
    _signature(rb"(?:\0[\t\n\r -~]){3,}", "UTF-16 text", RECODE.format("UTF-16BE")),
)
OFFICE_MEMBERS: Final = (  # member of a zip archive, and the file type that it identifies
    ("xl/workbook.xml", "an Excel file (.xlsx)"),
    ("content.xml", "an OpenDocument file (.ods)"),
    ("word/document.xml", "a Word file (.docx)"),
)


def is_archive(start: bytes) -> bool:
    """Whether a file with these first bytes is a zip archive, such as .npz and .xlsx."""
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_columnar(start: bytes) -> bool:
    """Whether a file with these first bytes is a Parquet, Arrow or Feather file."""
    return start.startswith((PARQUET, ARROW))


def compression_of(start: bytes) -> str | None:
    """The compression of a file with these first bytes, if it is compressed."""
    return next((name for sign, name in COMPRESSIONS if sign.match(start)), None)


def not_text(start: bytes) -> str | None:
    """The type of a file with these first bytes and advice for the user; None if it may be text.

    `start` is the whole file if it has at most `FIRST_BYTES` bytes.
    """
    for signature in SIGNATURES:
        if signature.start.match(start):
            return f"{signature.name}; {signature.advice}"
    if start and not start.strip(b"\0"):
        return "zero bytes only; is the file damaged?"
    if start and not start.strip() and len(start) < FIRST_BYTES:
        return "only blanks; expected rows of numbers"
    controls = len(start) - len(start.translate(None, CONTROLS))
    if len(start) >= MIN_BINARY_BYTES and controls > MAX_CONTROL_FRACTION * len(start):
        return f"binary data of an unknown type; {SUPPORTED}"
    return None


def not_arrays(names: list[str]) -> str | None:
    """The type of a zip archive with these members; None if it contains NumPy arrays."""
    if not names or any(name.endswith(".npy") for name in names):
        return None
    for name, what in OFFICE_MEMBERS:
        if name in names:
            return f"{what}; {EXPORT_CSV}"
    return f"a zip archive without NumPy arrays; {UNPACK}"
