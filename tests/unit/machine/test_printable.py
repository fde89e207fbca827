import io

import numpy as np
import pytest

from hogbatch.machine.printable import (
    MAX_ESCAPED,
    MAX_MESSAGE,
    digits,
    encodable,
    printable,
    quoted,
    rounded,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x.csv:3:5: größe", "x.csv:3:5: größe"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("right \u202e to left", r"right \u202e to left"),
        ("name \udcff", r"name \udcff"),
    ],
)
def test_unprintable_characters_are_escaped(text, shown):
    assert printable(text) == shown


def test_a_long_text_keeps_both_ends_and_a_quoted_token_is_short():
    text = printable("begin " + "x" * 10**6 + " end")
    assert text.startswith("begin x") and text.endswith("x end")
    assert len(text) <= MAX_MESSAGE + 5
    for token in ("x" * 10**6, "\0" * 10**6, "\U0010ffff" * 40, "'\"" * 99):
        assert len(quoted(token)) <= MAX_ESCAPED and quoted(token).isprintable()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((3.0, "3"), (-0.5, "-0.5"), (1700000000.0, "1700000000"), (1e300, "1e+300")),
        *((1700000000.5, "1700000000.5"), (np.float32(0.1), "0.1"), (np.float64(0.1), "0.1")),
        *((np.int64(10**12), "1000000000000"), (np.inf, "inf"), (np.nan, "nan")),
    ],
)
def test_numbers_have_as_few_digits_as_identify_them(value, shown):
    assert digits(value) == shown


def test_rounded_integers_have_no_exponent():
    shown = [rounded(value) for value in (0.123456789, 1234567, 99999.5, 1e20, 1e-9)]
    assert shown == ["0.123457", "1234567", "99999.5", "1e+20", "1e-09"]


def test_characters_missing_from_an_encoding_are_escaped():
    for encoding, shown in (("ascii", r"gr\xf6\xdfe"), ("utf-8", "größe")):
        assert encodable("größe", io.TextIOWrapper(io.BytesIO(), encoding=encoding)) == shown
    assert encodable("größe", io.StringIO()) == "größe"
