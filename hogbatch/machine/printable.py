"""Text and numbers as a terminal may show them: printable, and not endless."""

import math
from typing import Final, SupportsFloat, TextIO

MESSAGE: Final = 2000  # characters of the longest message
PIECE: Final = 40  # characters of a quoted piece before it is shortened,
ESCAPED: Final = 160  # and after its characters have become escapes
EXACT: Final = 1e15  # whole numbers up to here are exact in float64


def printable(text: str, most: int = MESSAGE) -> str:
    """Replace characters that do not print by escapes, and the middle of a long text by "...".

    Newlines, terminal escapes and the bytes of a file name that is not UTF-8 do not print.
    """
    if len(text) > most:
        text = f"{text[: most * 2 // 3]} ... {text[-(most // 3) :]}"
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def printable_lines(text: str) -> str:
    """`printable` for each line of a text that may have several, such as the end of a log."""
    return "\n".join(map(printable, text.split("\n")))


def quoted(token: str) -> str:
    """Quote a piece of a file for a message, shortened when it is long."""
    text = repr(token if len(token) <= PIECE else token[: PIECE - 3] + "...")
    return text if len(text) <= ESCAPED else f"{text[: ESCAPED - 4]}...{text[-1]}"


def digits(value: SupportsFloat) -> str:
    """A number in as few digits as tell it apart; whole numbers below 1e15 have no exponent."""
    number = float(value)
    if math.isfinite(number) and abs(number) < EXACT and number == int(number):
        return str(int(number))
    return str(value)  # shortest for the type of `value`, which may be float32


def rounded(value: float) -> str:
    """A number in about six digits, without an exponent where it is large and exact."""
    return f"{value:.6g}" if not 1e5 <= abs(value) < EXACT else f"{value:.0f}"


def encodable(text: str, stream: TextIO) -> str:
    """Replace by escapes what the encoding of a terminal or pipe lacks."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
