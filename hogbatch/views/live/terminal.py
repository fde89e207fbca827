"""A terminal on which several threads print lines and update a view below them."""

import os
import threading
from contextlib import suppress
from typing import Any, Self, TextIO

from rich.console import Console as RichConsole, ConsoleDimensions
from rich.text import Text


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
