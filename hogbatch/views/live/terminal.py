"""The choice between a live view and plain lines."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hogbatch.views.console import Console, PlainConsole
from hogbatch.views.live.capabilities import Capabilities, Size, capabilities, is_plain

if TYPE_CHECKING:  # Rich takes a tenth of a second to import
    from hogbatch.views.live.screen import Screen


@contextmanager
def console_for(*, quiet: bool, plain: bool) -> Iterator[Console]:
    """The console of a run: a live view if stdout is a terminal that can show it."""
    screen = None if quiet or plain else live_screen()
    if screen is None:
        yield PlainConsole(quiet)
        return
    from hogbatch.views.live.console import LiveConsole

    with LiveConsole(*screen) as console:
        yield console


def live_screen() -> "tuple[Screen, Capabilities] | None":
    """The terminal of stdout for a live view; None if plain lines are printed."""
    stream = sys.stdout
    try:
        if stream is None or not stream.isatty():
            return None
        size = Size(*os.get_terminal_size(stream.fileno()))
        foreground = os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # not a terminal with a size, or not that of this session
        return None
    if is_plain(os.environ, size) or not foreground:
        return None
    from hogbatch.views.live.screen import Screen

    able = capabilities(os.environ, stream.encoding or "ascii")
    return Screen(stream, able.colour), able
