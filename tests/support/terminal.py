"""A command on a pseudo-terminal, whose output a terminal emulator shows."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading

import pyte

from tests.support.fault_injection import WITHIN_S, wait_for

# Variables that change what is shown; a test sets them itself.
FROM_OUTSIDE = (
    *("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE"),
)

# Makes the terminal on stdin the controlling one of this session, and becomes the command. Python
# code between fork and exec, as of `preexec_fn`, may deadlock, since another thread reads.
LEAD = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A hogbatch command on a terminal of `columns` x `lines`, with the shell's part of its setup.

    `history` has the lines that have scrolled off the top, `raw` all bytes that were written.
    """

    COMMAND = (sys.executable, "-m", "hogbatch.cli.main")

    def __init__(self, *arguments, columns=80, lines=24, cwd=None, stderr=None, **env):
        self.raw = b""
        self.screen = pyte.HistoryScreen(columns, lines, history=10_000)
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._ours, theirs = pty.openpty()
        self._set_size(columns, lines)
        usual = {name: value for name, value in os.environ.items() if name not in FROM_OUTSIDE}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LEAD, *self.COMMAND, *map(str, arguments)],
            cwd=cwd,
            env={**usual, "TERM": "xterm-256color", "PYTHONUTF8": "1", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs if stderr is None else stderr,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        while True:
            try:
                content = os.read(self._ours, 1 << 16)
            except OSError:  # the last process has closed the terminal
                return
            with self._lock:
                self.raw += content
                self._stream.feed(content)

    @property
    def display(self):
        """The lines that are visible, without spaces at their ends."""
        with self._lock:
            return [line.rstrip() for line in self.screen.display]

    @property
    def text(self):
        """The visible lines as one text, without empty lines at the end."""
        return "\n".join(self.display).rstrip()

    @property
    def history(self):
        """The lines that have scrolled off the top."""
        with self._lock:
            return [
                "".join(line[n].data for n in range(self.screen.columns)).rstrip()
                for line in self.screen.history.top
            ]

    @property
    def everything(self):
        """All lines that a user can scroll to."""
        return [*self.history, *self.text.split("\n")]

    @property
    def shows_cursor(self):
        """Whether the cursor is visible."""
        return not self.screen.cursor.hidden

    def wait_for(self, *parts):
        """Wait until all `parts` are visible at once; return the visible text then."""

        def found():
            text = self.text
            return text if all(part in text for part in parts) else ""

        try:
            return wait_for(found, f"{parts} is visible")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.text}") from None

    def type(self, content):
        """Send key presses."""
        os.write(self._ours, content)

    def resize(self, columns, lines):
        """Change the size, as a window manager does, just after a frame.

        A frame for the size before would be wrapped after the change, and a part of it would stay.
        """
        before = len(self.raw)
        wait_for(lambda: len(self.raw) > before and not self.screen.cursor.x, "a frame is drawn")
        with self._lock:
            self.screen.resize(lines, columns)
            self._set_size(columns, lines)

    def _set_size(self, columns, lines):
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def finish(self):
        """Wait for the end of the command and of its output; return the exit code."""
        code = self.process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        assert not self._reader.is_alive(), "a process that was left behind uses the terminal"
        return code

    def close(self):
        """Kill what is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(WITHIN_S)
        os.close(self._ours)
