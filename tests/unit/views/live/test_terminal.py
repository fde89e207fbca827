"""The screen of a terminal emulator after frames, printed lines and errors."""

import io
import sys
import threading

import pytest
from rich.text import Text

from hogbatch.views.live.console import RunView
from tests.unit.views.live.conftest import Emulator


def lines(*texts):
    return [Text(text) for text in texts]


def test_a_frame_replaces_the_one_before_and_the_cursor_is_below_it(terminal, stream):
    with RunView(terminal) as view:
        view.show(lines("one", "two long", "three"))
        view.show(lines("1", "2"))
        assert stream.lines == ["1", "2"]
        assert (stream.screen.cursor.x, stream.screen.cursor.y) == (0, 2)
        assert "\x1b[?25l" not in stream.getvalue(), "the cursor is never hidden"
    assert stream.lines == ["1", "2"]


def test_printed_lines_stay_above_a_high_frame_also_if_they_wrap(terminal, stream):
    said = []
    with RunView(terminal) as view:
        for count in range(6):
            view.show(lines(*(f"frame {count}" for _ in range(7))))
            terminal.say("x" * 50 + str(count))
            terminal.say("[b]:wave: 3 'text'")
            said += ["x" * 20, "x" * 20, "x" * 10 + str(count), "[b]:wave: 3 'text'"]
        assert stream.lines == [*said, *["frame 5"] * 7]
        assert "[b]:wave: 3 'text'\n" in stream.getvalue(), "text without markup or colours"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_errors_appear_above_the_frame_if_stderr_is_a_terminal(
    terminal, stream, monkeypatch, is_terminal
):
    stderr = Emulator() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with RunView(terminal) as view:
        view.show(lines("frame"))
        print("an error", 3, file=sys.stderr)
        print("incom", end="", file=sys.stderr)
    assert sys.stderr is stderr
    shown = ["an error 3", "incom", "frame"] if is_terminal else ["frame"]
    assert stream.lines == shown
    assert stderr.getvalue() == ("" if is_terminal else "an error 3\nincom")


def test_a_closed_terminal_ends_nothing(terminal, stream):
    def fail(text):
        raise OSError(5, "Input/output error")

    stream.write = fail
    with RunView(terminal) as view:
        view.show(lines("two"))
        terminal.say("said")


@pytest.fixture
def frequent_switches():
    """Threads take turns after a microsecond instead of 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_lines_of_several_threads_never_mix_with_frames(
    terminal, stream, monkeypatch, frequent_switches
):
    monkeypatch.setattr(sys, "stderr", Emulator())
    with RunView(terminal) as view:

        def draw():
            for n in range(200):
                view.show(lines(*[f"frame {n}"] * (n % 7)))

        thread = threading.Thread(target=draw)
        thread.start()
        said = [f"line {n} " + "." * (n % 30) for n in range(200)]
        for n, text in enumerate(said):
            print(text, file=sys.stderr) if n % 2 else terminal.say(text)
        thread.join()
        view.show([])
    assert "".join(stream.lines).replace(" ", "") == "".join(said).replace(" ", "")
