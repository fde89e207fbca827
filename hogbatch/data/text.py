"""Text files as blocks of whole lines, and the numbers in them.

Every text format is read in two ways that give the same result: a block of plain numbers and
delimiters goes through NumPy at once (`plain_numbers` and a check of the delimiters), and a block
with anything unusual goes line by line (`number`), which also finds the exact place of an error.
"""

import codecs
import gzip
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import DataError

BLOCK_BYTES = 1 << 24
FLOAT32_LIMIT = 2.0**128 - 2.0**103  # from here on, rounding to float32 gives infinity
PLAIN = b"0123456789+-.eE"


class Block(NamedTuple):
    """Whole lines of a file, each with its newline."""

    first_line: int  # its number in the file, from 1
    text: bytes


def blocks(path: Path) -> Iterator[Block]:
    """Cut a text file (plain or .gz) at line ends, into blocks of some 16 MiB.

    Raises DataError when the file is missing, a directory, unreadable or corrupt.
    """
    line, pending = 1, b""
    for chunk in _chunks(path):
        whole, newline, rest = (pending + chunk).rpartition(b"\n")
        if newline:
            yield Block(line, whole + newline)
            line += whole.count(b"\n") + 1
        pending = rest
    if pending:
        yield Block(line, pending + b"\n")


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
            while chunk := file.read(BLOCK_BYTES):
                yield chunk
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except EOFError:
        raise DataError(f"{path}: the gzip data ends early; is the file complete?") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip data is not intact: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def plain_numbers(text: bytes, delimiters: bytes) -> NDArray[np.float64] | None:
    """Parse all numbers of `text`, or return None unless it is plain numbers and delimiters.

    A piece between delimiters yields one number, and an empty piece none: the caller has to count
    where empty ones matter. A number that float32 cannot hold gives None as well.
    """
    if text.translate(None, PLAIN + delimiters):
        return None
    spaced = text.translate(bytes.maketrans(delimiters, b" " * len(delimiters)))
    if not spaced.strip():
        return None  # NumPy would find a -1 in blanks alone
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy 1 warns where NumPy 2 raises
            numbers = np.fromstring(spaced, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    if max(numbers.max(), -numbers.min()) >= FLOAT32_LIMIT:
        return None
    return numbers


def number(token: str) -> float:
    """Parse one number; ValueError unless it is written in digits and fits into float32."""
    try:
        value = float(token)
    except ValueError:
        raise ValueError(f"expected a number; got {quoted(token)}") from None
    if "_" in token or not token.isascii():  # 1_000 and foreign digits, which Python takes
        raise ValueError(f"expected a number; got {quoted(token)}")
    if not abs(value) < FLOAT32_LIMIT:
        raise ValueError(f"expected a finite number within float32; got {quoted(token)}")
    return value


def quoted(token: str) -> str:
    """Quote a piece of a file for a message, shortened when it is long."""
    return repr(token if len(token) <= 40 else token[:37] + "...")
