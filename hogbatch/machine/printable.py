"""Text and numbers for terminals: printable, and limited in length."""

import math
from typing import Final, SupportsFloat, TextIO

MAX_MESSAGE: Final = 2000  # characters
MAX_TOKEN: Final = 40  # characters of a quoted token before escaping,
MAX_ESCAPED: Final = 160  # and after escaping
EXACT: Final = 2.0**53  # whole numbers below it are exact in float64


def printable(text: str, max_length: int = MAX_MESSAGE) -> str:
    """Escape characters that are not printable, and replace the middle of a long text by "...".

    Newlines, terminal escapes and the bytes of file names that are not UTF-8 are not printable.
    """
    if len(text) > max_length:
        text = f"{text[: max_length * 2 // 3]} ... {text[-(max_length // 3) :]}"
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def printable_lines(text: str) -> str:
    """Apply `printable` to each line of a text, such as the end of a log."""
    return "\n".join(map(printable, text.split("\n")))


def quoted(token: str) -> str:
    """Quote a token of a file for a message, shortened if it is long."""
    text = repr(token if len(token) <= MAX_TOKEN else token[: MAX_TOKEN - 3] + "...")
    return text if len(text) <= MAX_ESCAPED else f"{text[: MAX_ESCAPED - 4]}...{text[-1]}"


def digits(value: SupportsFloat) -> str:
    """Format a number with the fewest digits that identify it; exact integers in full."""
    number = float(value)
    if math.isfinite(number) and abs(number) < EXACT and number == int(number):
        return str(int(number))
    return str(value)  # shortest for the type of `value`, which may be float32


def rounded(value: float) -> str:
    """Format a number with about six digits; large exact integers without an exponent."""
    return f"{value:.6g}" if not 1e5 <= abs(value) < EXACT else f"{value:.0f}"


def plural(count: int, noun: str) -> str:
    """Return `count` with `noun`, which gets an "s" unless there is exactly one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def encodable(text: str, stream: TextIO) -> str:
    """Escape characters that the encoding of a terminal or pipe does not have."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
