"""The live view of real runs on a pseudo-terminal, as a terminal emulator shows it."""

import contextlib
import os
import re
import signal

import pytest

from benchmarks.common.job import events_in
from hogbatch.events.event import WorkerJoined
from tests.support.fault_injection import ENDLESS, wait_for
from tests.support.terminal import Terminal

SIZES = [(200, 60), (40, 10)]
CURVE = "▁▁"
COLOURS = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")
NETWORK = ("--hidden", "16", "--workers", "cpu:1")


@pytest.fixture
def terminal():
    """Start a command on a terminal; it is killed after the test."""
    with contextlib.ExitStack() as cleanup:

        def start(*arguments, **settings):
            made = Terminal(*arguments, **settings)
            cleanup.callback(made.close)
            return made

        yield start


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file that is trained on in the process of the coordinator."""
    path = tmp_path_factory.mktemp("data") / "small.svm"
    path.write_text("".join(f"{n % 2} 1:{n % 7} 2:{n % 3}\n" for n in range(300)))
    return path


@pytest.fixture
def long_dir(tmp_path):
    """A run directory whose path has 150 characters."""
    return tmp_path / ("d" * (149 - len(str(tmp_path))))


def expect_one_frame(shown, *, starts, result):
    """The terminal has one frame, and below it only the result, which may wrap."""
    lines = shown.everything
    first_words = [
        line.split()[0] for line in lines if re.match("(epoch|run|worker|validated) ", line)
    ]
    assert sorted(first_words) == ["epoch", "run", "validated", "worker"], "one of each line"
    tables = [line.split()[0] for line in lines if line.startswith("cpu-")]
    assert tables == ["cpu-0"]
    state = next(n for n, line in enumerate(lines) if line.startswith(starts))
    end = next(n for n, line in enumerate(lines) if line.startswith(result))
    assert state < end and all(len(line) < shown.screen.columns for line in lines[state:end])
    below = "".join(lines[end:])
    assert below.replace(" ", "").endswith("model.safetensors"), "the message is complete"
    assert shown.shows_cursor and shown.screen.cursor.x == 0


@pytest.mark.parametrize("size", SIZES)
def test_the_bundled_sample_ends_with_one_frame_and_the_result(terminal, long_dir, size):
    flags = ("--epochs", 2, "--run-dir", long_dir)
    outdated = {"COLUMNS": "300", "LINES": "90"}  # as exported by a shell, before a resize
    flags = (*NETWORK, *flags)
    shown = terminal("train", "a9a", *flags, columns=size[0], lines=size[1], **outdated)
    assert shown.finish() == 0
    expect_one_frame(shown, starts="finished: all epochs", result="finished: validation accuracy")
    assert any(line.startswith("epoch     2.00 of 2") for line in shown.everything)
    assert COLOURS.search(shown.raw)


def test_a_run_has_one_frame_with_a_curve(terminal, long_dir):
    flags = (*ENDLESS, "--eval-seconds", 0.1, "--checkpoint-seconds", 0.2)
    limits = (*flags, "--run-dir", long_dir, "--data-cache", "off")
    shown = terminal("train", "a9a", *NETWORK, *limits, columns=60, lines=20)
    shown.wait_for("training", "epoch ", "cpu-0", "trains")
    scrolled = len(shown.history)
    shown.wait_for("validated 0.", CURVE)
    assert not any("cpu-" in line for line in shown.history[scrolled:])
    shown.type(b"\x03")
    assert shown.finish() == 130
    expect_one_frame(shown, starts="stopped: interrupted", result="stopped: validation accuracy")


def test_a_terminal_that_is_resized_has_one_frame(terminal, tmp_path):
    flags = (*ENDLESS, "--eval-seconds", 0.2, "--run-dir", tmp_path / "run")
    shown = terminal("train", "a9a", *NETWORK, *flags, columns=100, lines=30)
    shown.wait_for("train     0.", "cpu-0")
    for columns, lines in ((60, 20), (120, 40), (80, 24)):
        shown.resize(columns, lines)
        wait_for(
            lambda: (
                sum(line.startswith("epoch ") for line in shown.display) == 1
                and max(map(len, shown.display)) < shown.screen.columns
            ),
            "the view is drawn for the new size",
        )
    shown.type(b"\x03")
    assert shown.finish() == 130
    text = shown.text
    assert "stopped: interrupted" in text and "hogbatch: interrupted; the model is in" in text
    assert text.count("epoch  ") == text.count("worker  ") == 1 and "Traceback" not in text
    assert text.split("\n")[-1].endswith("model.safetensors")
    assert shown.shows_cursor and shown.screen.cursor.x == 0


def test_a_killed_coordinator_leaves_a_usable_terminal(terminal, tmp_path):
    shown = terminal("train", "a9a", *NETWORK, *ENDLESS, "--run-dir", tmp_path / "run")
    shown.wait_for("training", "cpu-0")
    shown.process.kill()
    assert shown.finish() == -signal.SIGKILL
    assert shown.shows_cursor and shown.screen.cursor.x == 0
    assert b"\x1b[?25l" not in shown.raw, "the cursor was never hidden"
    assert shown.display[shown.screen.cursor.y] == "", "a shell continues in an empty line"


def test_an_error_is_printed_below_the_view_and_on_stderr(terminal, tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:0.5\n1 x\n")
    shown = terminal("train", "bad.svm", cwd=tmp_path)
    assert shown.finish() == 2
    assert shown.text.split("\n")[-1].startswith("hogbatch: bad.svm:2")
    with (tmp_path / "errors").open("w") as stderr:
        shown = terminal("train", "bad.svm", cwd=tmp_path, stderr=stderr)
        assert shown.finish() == 2
    assert (tmp_path / "errors").read_text().startswith("hogbatch: bad.svm:2")
    assert "hogbatch:" not in shown.text


def test_no_color_and_ascii_and_plain_lines(terminal, small, tmp_path):
    flags = ("--epochs", 3, "--run-dir", tmp_path / "run")
    env = {"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    shown = terminal("train", small, *flags, **env)
    assert shown.finish() == 0
    assert not COLOURS.search(shown.raw) and shown.raw.isascii()
    assert "epoch     3.00 of 3" in shown.text and "####" in shown.text
    shown = terminal("train", small, *flags, "--overwrite", "--plain")
    assert shown.finish() == 0
    assert b"\x1b" not in shown.raw and "finished: validation accuracy" in shown.text


def test_a_killed_worker_appears_and_another_process_follows(terminal, tmp_path):
    flags = (*ENDLESS, "--eval-seconds", 0.2, "--run-dir", tmp_path / "run")
    shown = terminal("train", "a9a", *NETWORK, "--workers", "cpu:1,cpu:1", *flags, lines=30)
    shown.wait_for("validated 0.", "cpu-1")
    follower = terminal("status", tmp_path / "run", "--follow", columns=60, lines=20)
    plain = terminal("status", tmp_path / "run", "--follow", "--plain")
    follower.wait_for("training", "validated 0.", "cpu-0", "trains")
    plain.wait_for("state     training")
    victim = events_in(tmp_path / "run", WorkerJoined)[0]
    os.kill(victim.pid, signal.SIGKILL)
    name = victim.worker
    for each in (shown, follower):
        text = each.wait_for(" lost ")
        assert any(re.match(rf"{name} .* lost \d", line) for line in text.split("\n")), text
    follower.type(b"\x03")
    assert follower.finish() == 130
    assert follower.text.split("\n")[-1].endswith("hogbatch: interrupted")
    again = terminal("status", tmp_path / "run", "--follow")
    again.wait_for("training")
    shown.type(b"\x03")
    assert shown.finish() == 130
    assert again.finish() == 0 and plain.finish() == 0
    assert again.text.startswith("stopped: interrupted") and again.shows_cursor
    assert b"\x1b" not in plain.raw and "state     stopped: interrupted" in plain.everything
