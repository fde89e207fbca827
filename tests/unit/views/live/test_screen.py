"""The screen of a terminal emulator after frames, printed lines, errors and changes of size."""

import io
import sys
import threading

import pyte
import pytest
from rich.text import Text

from hogbatch.views.live.capabilities import Size
from hogbatch.views.live.display import Display
from hogbatch.views.live.screen import ErrorsAbove, Screen
from tests.support.fault_injection import wait_for


class Emulator(io.StringIO):
    """A stream that a terminal emulator shows."""

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


@pytest.fixture
def stream():
    return Emulator()


@pytest.fixture
def screen(stream, monkeypatch):
    size = property(lambda self: Size(stream.screen.columns, stream.screen.lines))
    monkeypatch.setattr(Screen, "size", size)
    return Screen(stream, colour=False)


def lines(*texts):
    return [Text(text) for text in texts]


def test_a_frame_replaces_the_one_before_unless_it_is_equal(screen, stream):
    screen.show(lines("one", "two long", "three"))
    screen.show(lines("1", "2"))
    assert stream.lines == ["1", "2"]
    assert (stream.screen.cursor.x, stream.screen.cursor.y) == (0, 2)
    assert not stream.screen.cursor.hidden
    size = len(stream.getvalue())
    screen.show(lines("1", "2"))
    assert len(stream.getvalue()) == size


def test_printed_lines_stay_above_a_high_frame_also_if_they_wrap(screen, stream):
    said = []
    for count in range(6):
        screen.show(lines(*(f"frame {count}" for _ in range(7))))
        screen.say("x" * 50 + str(count))
        screen.say("y" * 20)
        said += ["x" * 20, "x" * 20, "x" * 10 + str(count), "y" * 20]
    assert stream.lines == [*said, *["frame 5"] * 7]


def test_a_frame_that_was_made_for_another_size_is_drawn_anew(screen, stream):
    """The terminal is resized while a frame is made."""
    screen.show(lines("x" * 18, "y"), Size(20, 8))
    stream.screen.resize(8, 10)
    screen.show(lines("x" * 18, "y"), Size(20, 8))
    screen.show(lines("x" * 9, "y"), Size(10, 8))
    assert stream.lines == ["x" * 9, "y"]


@pytest.mark.parametrize("size", [(10, 8), (20, 4), (40, 12)])
def test_a_terminal_of_another_size_is_drawn_anew(screen, stream, size):
    screen.say("a" * 15)
    screen.say("b")
    screen.show(lines("x" * 18, "y"))
    stream.screen.resize(size[1], size[0])
    screen.show(lines("x" * 8, "y"))
    shown = [line.rstrip() for line in stream.screen.display]
    start = shown.index("x" * 8)
    assert shown[start - 1 : start + 2] == ["b", "x" * 8, "y"]
    assert shown.count("x" * 8) == shown.count("y") == 1


def test_a_line_printed_before_the_next_frame_of_a_resized_terminal(screen, stream):
    screen.show(lines("x" * 18, "y"))
    stream.screen.resize(8, 10)
    screen.say("said")
    screen.show(lines("new"))
    assert [line.rstrip() for line in stream.screen.display][:3] == ["said", "new", ""]


def test_a_terminal_that_another_process_has_used_is_drawn_anew(screen, stream):
    screen.say("said")
    screen.show(lines("one", "two"))
    stream.write("\n$ fg\n")
    screen.displace()
    screen.show(lines("one", "two"))
    assert [line.rstrip() for line in stream.screen.display][:4] == ["said", "one", "two", ""]


def test_errors_appear_above_and_go_to_stderr(screen, stream):
    stderr = Emulator()
    stderr.write = lambda text: stream.write(text) and None
    errors = ErrorsAbove(screen, stderr)
    screen.show(lines("frame"))
    print("an error", 3, file=errors)
    errors.write("incom")
    assert stream.lines == ["an error 3", "frame"]
    screen.leave()
    errors.drain()
    assert stream.lines == ["an error 3", "frame", "incom"]
    assert errors.isatty() and errors.encoding == "utf-8"


@pytest.mark.parametrize("terminal", [True, False])
def test_stderr_is_replaced_if_it_is_a_terminal_and_restored(screen, monkeypatch, terminal):
    stderr = Emulator() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    display = Display(screen, lambda size: lines("frame"))
    display.start()
    assert isinstance(sys.stderr, ErrorsAbove) == terminal
    display.stop()
    assert sys.stderr is stderr


def test_characters_without_encoding_are_escaped(screen, stream):
    stream.encoding = "ascii"
    screen.say("bö")
    assert stream.lines == ["b\\xf6"]


def test_a_closed_terminal_ends_nothing(screen, stream):
    def fail(text):
        raise OSError(5, "Input/output error")

    stream.write = fail
    screen.show(lines("two"))
    screen.say("said")
    screen.leave()


def test_styles_are_escape_sequences_only_with_colour(stream, screen):
    screen.show([Text("red", "bold red")])
    assert "\x1b[1;31m" not in stream.getvalue()
    Screen(stream, colour=True).show([Text("red", "bold red")])
    assert "\x1b[1;31mred\x1b[0m" in stream.getvalue()


def test_lines_of_several_threads_never_mix_with_frames(screen, stream):
    def draw():
        for n in range(200):
            screen.show(lines(*[f"frame {n}"] * (n % 7)))

    thread = threading.Thread(target=draw)
    thread.start()
    said = [f"line {n} " + "." * (n % 30) for n in range(200)]
    for text in said:
        screen.say(text)
    thread.join()
    screen.show([])
    assert "".join(stream.lines).replace(" ", "") == "".join(said).replace(" ", "")


def test_the_last_frame_leaves_room_for_the_result(screen, stream):
    sizes = []

    def frame(size):
        sizes.append(size)
        return lines(*(f"{n}" for n in range(size.height - 1)))

    display = Display(screen, frame)
    display.start()
    wait_for(lambda: sizes, "the first frame")
    display.stop("r" * 50)
    screen.say("r" * 50)
    assert sizes[-1] == Size(20, 5)
    assert stream.lines == ["0", "1", "2", "3", "r" * 20, "r" * 20, "r" * 10]
    assert len(stream.screen.history.top) == 0


def test_a_bug_in_a_frame_is_logged_and_ends_only_the_view(screen, stream, caplog):
    display = Display(screen, lambda size: 1 / 0)
    display.start()
    wait_for(lambda: caplog.records, "the bug is logged")
    screen.say("said")
    display.stop()
    assert "the run continues" in caplog.text and len(caplog.records) == 1
    assert stream.lines == ["said"]
