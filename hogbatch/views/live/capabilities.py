"""Capabilities of a terminal."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from hogbatch.machine.printable import printable

GLYPHS: Final = "⣿━─…"  # one of each kind that frames contain
PLAIN_TERMINALS: Final = ("", "dumb", "unknown")  # values of TERM
WITHOUT_BRAILLE: Final = (
    "linux",
)  # the text console of Linux: UTF-8, but a font of 512 characters


class Size(NamedTuple):
    """The size of a terminal in characters."""

    width: int
    height: int


SMALLEST: Final = Size(40, 10)


class Capabilities(NamedTuple):
    """Whether a terminal has colours, and characters beyond ASCII."""

    colour: bool
    unicode: bool

    def clean(self, text: str) -> str:
        """Text from a run with only those characters that do no harm and can be shown."""
        text = printable(text)
        return text if self.unicode else text.encode("ascii", "backslashreplace").decode()


def is_plain(environment: Mapping[str, str], size: Size) -> bool:
    """Whether a terminal is shown plain lines: its type or size permits no view, or this is CI."""
    too_small = size.width < SMALLEST.width or size.height < SMALLEST.height
    return too_small or environment.get("TERM", "") in PLAIN_TERMINALS or "CI" in environment


def capabilities(environment: Mapping[str, str], encoding: str) -> Capabilities:
    """The capabilities of a terminal with this encoding; see https://no-color.org for NO_COLOR."""
    try:
        unicode = environment.get("TERM") not in WITHOUT_BRAILLE and bool(GLYPHS.encode(encoding))
    except (UnicodeEncodeError, LookupError):
        unicode = False
    return Capabilities(colour=not environment.get("NO_COLOR"), unicode=unicode)
