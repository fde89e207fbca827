"""Lines at the bottom of a terminal that are replaced in place, below lines that stay.

`rich.live.Live` finds the place of a frame before it takes its lock, and assumes that the size of
the terminal does not change. A line printed by another thread, or a resized terminal, would leave
parts of earlier frames behind, so frames are placed here, each with a single write under one lock.

Between two writes, the cursor stands at the start of the line below the frame, and is never hidden.
A terminal is therefore usable when this process is killed or stopped at any time.
"""

import io
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TextIO

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console as RichConsole
from rich.text import Text

from hogbatch.machine.printable import encodable
from hogbatch.views.live.capabilities import Size

CLEAR: Final = "\x1b[H\x1b[2J"  # the whole terminal
ERASE_BELOW: Final = "\x1b[J"
ERASE_REST: Final = "\x1b[K"  # of the line
KEPT: Final = 100  # printed lines that are repeated on a resized terminal

_styles = RichConsole(file=io.StringIO(), color_system="standard", force_terminal=True)


class Screen:
    """A terminal with lines that stay, and a frame below them. All methods are thread-safe.

    After an error, such as a closed terminal, nothing is written any more.
    """

    def __init__(self, stream: TextIO, colour: bool) -> None:
        self._stream: TextIO | None = stream
        self._colour = colour
        self._lock = threading.RLock()
        self._size = self.size
        self._frame: list[str] = []  # on the terminal
        self._printed: deque[str] = deque(maxlen=KEPT)
        self._moved = False

    @property
    def size(self) -> Size:
        """The size of the terminal now."""
        try:
            return (
                Size(*os.get_terminal_size(self._stream.fileno())) if self._stream else Size(0, 0)
            )
        except (OSError, ValueError):
            return Size(0, 0)

    def show(self, frame: Sequence[Text], made_for: Size | None = None) -> None:
        """Replace the frame; its lines are narrower than a terminal of the size `made_for`.

        If the size of the terminal has changed since, the next frame is drawn completely.
        """
        lines = [_rendered(line) if self._colour else line.plain for line in frame]
        with self._lock:
            if lines != self._frame or self._is_displaced():
                before, after = self._to_top(len(lines)), "".join(map(_whole, lines))
                self._frame = lines
                self._write(f"{before}{after}{ERASE_BELOW}")
                if made_for not in (None, self._size):
                    self._moved = True

    def say(self, text: str) -> None:
        """Print text above the frame; it stays."""
        self._above(text, self._stream)

    def complain(self, text: str, stream: TextIO) -> None:
        """Print whole lines above the frame to `stream`, which is this terminal, too."""
        self._above(text.removesuffix("\n"), stream)

    def rows(self, text: str) -> int:
        """The lines of the terminal that a text takes, which wraps where it is too long."""
        width = max(1, self.size.width)
        lines = text.split("\n") if text else []
        return sum(max(1, -(-cell_len(line) // width)) for line in lines)

    def leave(self) -> None:
        """Let the frame stay on the terminal; what is printed from now on is below it."""
        with self._lock:
            self._printed.clear()
            self._frame = []

    def displace(self) -> None:
        """The cursor may have been moved by another process, so the terminal is drawn again."""
        self._moved = True

    def _above(self, text: str, stream: TextIO | None) -> None:
        with self._lock:
            if self._is_displaced() and self._frame:
                before = self._to_top(0)
                self._frame = []  # it has another width; the next one follows soon
            else:
                before = self._to_top(0) + (ERASE_BELOW if self._frame else "")
            self._printed.append(text)
            if stream is None or stream is self._stream:
                self._write(f"{before}{self._encoded(text)}\n{''.join(map(_whole, self._frame))}")
                return
            self._write(before)
            try:
                stream.write(f"{text}\n")
                stream.flush()
            finally:
                self._write("".join(map(_whole, self._frame)))

    def _is_displaced(self) -> bool:
        """Whether it is not known where the frame is: the terminal may have wrapped its lines."""
        return self._moved or self.size != self._size

    def _to_top(self, lines: int) -> str:
        """Move to the first line of the frame, on a displaced terminal for a frame of `lines`."""
        if self._is_displaced() and self._frame:
            self._size, self._moved = self.size, False
            return CLEAR + "".join(f"{each}\n" for each in self._last_printed(lines))
        self._size, self._moved = self.size, False
        return f"\x1b[{len(self._frame)}A\r" if self._frame else ""

    def _last_printed(self, lines: int) -> list[str]:
        """The last printed lines that fit above a frame of `lines`."""
        room = self._size.height - lines - 1
        shown: list[str] = []
        for text in reversed(self._printed):
            room -= self.rows(text)
            if room < 0:
                break
            shown.insert(0, self._encoded(text))
        return shown

    def _encoded(self, text: str) -> str:
        return encodable(text, self._stream) if self._stream else text

    def _write(self, text: str) -> None:
        if self._stream is None or not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # a closed terminal
            self._stream = None


class ErrorsAbove(io.TextIOBase):
    """In the place of sys.stderr: writes whole lines to `stderr`, above the frame of a screen."""

    def __init__(self, screen: Screen, stderr: TextIO) -> None:
        self.stderr = stderr
        self._screen = screen
        self._rest = ""  # of an incomplete line

    def write(self, text: str) -> int:
        """Write the lines that are complete."""
        lines, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline:
            self._screen.complain(lines + newline, self.stderr)
        return len(text)

    def drain(self) -> None:
        """Write the incomplete line."""
        rest, self._rest = self._rest, ""
        if rest:
            self.stderr.write(rest)
            self.stderr.flush()

    def __getattribute__(self, name: str) -> Any:
        """The attributes of a stream are those of stderr."""
        if name in ("fileno", "isatty", "encoding", "errors", "buffer"):
            return getattr(self.stderr, name)
        return super().__getattribute__(name)


def _whole(line: str) -> str:
    """A line of a frame, without the rest of the line that was there before."""
    return f"{line}{ERASE_REST}\n"


def _rendered(line: Text) -> str:
    """A line with escape sequences for its styles."""
    base = _styles.get_style(line.style)
    return "".join(
        (base + segment.style).render(segment.text, color_system=ColorSystem.STANDARD)
        for segment in line.render(_styles)
    )
