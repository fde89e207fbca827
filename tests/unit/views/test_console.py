import io
import os

import pytest

from hogbatch.events.records import Evaluation, Faults, RunTotals, WorkerRecord
from hogbatch.views.console import PlainConsole, line


def evaluation(**changes):
    fields = {"seconds": 12.345, "epochs": 1.5, "rows": 48_000, "train_loss": 0.4, "test_loss": 0.3}
    return Evaluation(**{**fields, "test_values": {"accuracy": 0.8512}, **changes})


def worker(name, batch_size, fraction):
    return WorkerRecord(name, name[:3], 1, 0, 0, fraction, 1.0, batch_size, [], [])


STANDING = RunTotals(
    12.345, 1.5, 48_000, [worker("cpu-0", 16, 0.251), worker("gpu-0", 4096, 0.749)], Faults()
)


@pytest.fixture
def screen():
    return io.StringIO()


def test_a_line_has_progress_speed_losses_and_workers():
    assert line(evaluation(), STANDING, 1_234_567.8) == (
        "   12.35 s  epoch 1.50  1,234,568 rows/s  train 0.4000  test 0.3000  accuracy 0.8512  "
        "cpu-0 batch 16 updates 25%  gpu-0 batch 4096 updates 75%"
    )


def test_a_line_has_the_utilization_of_workers_that_have_measured_their_peak():
    shown = line(evaluation(utilization={"gpu-0": 0.527, "cpu-1": 0.5}), STANDING, 0.0)
    assert shown.endswith(
        "cpu-0 batch 16 updates 25%  gpu-0 batch 4096 updates 75% utilization 53%"
    )


def test_a_line_omits_what_was_not_measured():
    nothing = evaluation(train_loss=None, test_loss=None, test_values={})
    assert line(nothing, RunTotals(0, 0, 0, [], Faults()), 0.0) == (
        "   12.35 s  epoch 1.50  0 rows/s  train -"
    )


def test_the_speed_is_that_since_the_last_line(screen):
    live = PlainConsole(quiet=False, stream=screen)
    for seconds, rows in ((2.0, 1000), (4.0, 6000), (4.0, 6000)):
        live.report(evaluation(seconds=seconds, rows=rows), STANDING)
    speeds = [text.split("  ")[-6] for text in screen.getvalue().splitlines()]
    assert speeds == ["500 rows/s", "2,500 rows/s", "0 rows/s"]


def test_quiet_prints_nothing(screen):
    live = PlainConsole(quiet=True, stream=screen)
    live.say("hello")
    live.report(evaluation(), STANDING)
    assert screen.getvalue() == ""


def test_a_line_is_flushed(screen):
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        PlainConsole(quiet=False, stream=stream).say("hello")
        assert os.read(reader, 100) == b"hello\n"
    os.close(reader)


def test_a_run_goes_on_when_nobody_reads_any_more():
    reader, writer = os.pipe()
    stream = io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True)
    live = PlainConsole(quiet=False, stream=stream)
    os.close(reader)
    live.say("lost")
    live.report(evaluation(), STANDING)
    stream.close()


def test_what_a_terminal_cannot_show_is_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PlainConsole(quiet=False, stream=stream).say("a\x1b[31m\nbö\udcff")
    assert stream.buffer.getvalue() == b"a\\x1b[31m\nb\\xf6\\udcff\n"
