"""A terminal with lines that stay, and a view below them that is updated in place."""

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self, TextIO

from rich.console import Console as RichConsole, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

INTERVAL_S: Final = 0.5  # between two frames


class Terminal(RichConsole):
    """A terminal on which several threads may print; each block of `with` is written at once.

    A call of `rich.live.Live` must be in such a block, too: Rich has another lock, which is then
    always the inner one. The cursor is never hidden, so the terminal stays usable if this process
    is killed. After an error, such as a closed terminal, nothing is written any more.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, force_terminal=True)
        self._writing = threading.RLock()

    def fit(self) -> ConsoleDimensions:
        """Adopt and return the present size; Rich would prefer COLUMNS and LINES, if set."""
        with suppress(OSError):  # it is not a terminal
            size = os.get_terminal_size(self.file.fileno())
            if all(size):  # a pseudo-terminal may report 0, 0
                self.size = size
        return self.size

    def __enter__(self) -> Self:
        self._writing.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        except OSError:
            self.quiet = True
        finally:
            self._writing.release()

    def show_cursor(self, show: bool = True) -> bool:
        return False

    def say(self, line: str) -> None:
        """Print a line that stays; the terminal wraps it."""
        self.print(Text(line), soft_wrap=True)


class LiveView:
    """Lines at the bottom of a terminal, from `with` on; the last ones stay.

    What is written to stderr appears above them if stderr is a terminal, too.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live = Live(
            console=terminal,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        with self._terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if sys.stderr is not None:
            sys.stderr.flush()  # its last line may be incomplete
        with self._terminal:
            self._live.stop()

    def show(self, lines: Sequence[Text]) -> None:
        """Replace the lines. The cursor then stands in an empty line below them."""
        with self._terminal:
            self._live.update(Group(*lines, ""), refresh=True)
