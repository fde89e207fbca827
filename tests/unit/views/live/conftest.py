"""A stream that a terminal emulator shows."""

import io

import pyte
import pytest

from hogbatch.views.live.terminal import Terminal


class Emulator(io.StringIO):
    """A terminal of some columns and lines."""

    encoding = "utf-8"

    def __init__(self, columns=20, lines=8):
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._emulated = pyte.Stream(self.screen)

    def write(self, text):
        self._emulated.feed(text.replace("\n", "\r\n"))
        return super().write(text)

    def isatty(self):
        return True

    @property
    def lines(self):
        """All lines, also those that have scrolled off, without empty ones at the end."""
        columns = range(self.screen.columns)
        top = ["".join(line[n].data for n in columns) for line in self.screen.history.top]
        return (
            "\n".join(line.rstrip() for line in (*top, *self.screen.display)).rstrip().split("\n")
        )


def terminal_of(stream):
    """A terminal whose size is that of the emulator."""
    made = Terminal(stream)
    made.size = stream.screen.columns, stream.screen.lines
    return made


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    """The environment has no settings of terminals."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stream():
    return Emulator()


@pytest.fixture
def terminal(stream):
    return terminal_of(stream)
