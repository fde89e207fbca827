"""The choice between a live view and plain lines."""

import io
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from hogbatch.views.console import Console, PlainConsole

if TYPE_CHECKING:  # Rich takes a tenth of a second to import
    from hogbatch.views.live.terminal import Terminal

PLAIN_TERMINALS: Final = ("", "dumb", "unknown")  # values of TERM
SMALLEST: Final = (40, 10)  # columns and lines
LINES_S: Final = 10.0  # of training between two lines of a run from Python, in a file or pipe


def console_for(*, quiet: bool, plain: bool) -> AbstractContextManager[Console]:
    """The console of a run: a live view if stdout is a terminal that can show it."""
    terminal = None if quiet or plain else live_terminal()
    if terminal is None:
        return nullcontext(PlainConsole(quiet))
    from hogbatch.views.live.console import LiveConsole

    return LiveConsole(terminal)


def live_terminal() -> "Terminal | None":
    """The terminal of stdout for a live view; None if plain lines are printed."""
    stream = sys.stdout
    try:
        if not isinstance(stream, io.TextIOWrapper) or not stream.isatty():
            return None
        size = os.get_terminal_size(stream.fileno())
        foreground = os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # not a terminal with a size, or not that of this session
        return None
    if is_plain(os.environ, size) or not foreground:
        return None
    from hogbatch.views.live.terminal import Terminal

    stream.reconfigure(errors="backslashreplace")  # of characters that the terminal does not have
    return Terminal(stream)


def is_plain(environment: Mapping[str, str], size: tuple[int, int]) -> bool:
    """Whether a terminal is shown plain lines: its type or size permits no view, or this is CI."""
    too_small = size[0] < SMALLEST[0] or size[1] < SMALLEST[1]
    return too_small or environment.get("TERM", "") in PLAIN_TERMINALS or "CI" in environment


def console_in_python(*, quiet: bool, plain: bool) -> Console:
    """The console of a run from Python: a bar in a terminal or a notebook, else few lines."""
    stream = sys.stdout
    if quiet or plain or stream is None:
        return PlainConsole(quiet)
    if stream.isatty() or type(stream).__module__.startswith("ipykernel"):
        from hogbatch.views.live.bar import BarConsole

        return BarConsole(stream)
    return PlainConsole(False, interval=LINES_S)
