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


WORKERS = [worker("cpu-0", 16, 0.251), worker("gpu-0", 4096, 0.749)]
STANDING = RunTotals(12.345, 1.5, 48_000, WORKERS, Faults())


@pytest.mark.parametrize(
    ("changes", "workers", "shown"),
    [
        (
            {"utilization": {"gpu-0": 0.527, "cpu-1": 0.5}},
            WORKERS,
            "train 0.4000  test 0.3000  accuracy 0.8512  cpu-0 batch 16 updates 25%  "
            "gpu-0 batch 4096 updates 75% utilization 53%",
        ),
        ({"train_loss": None, "test_loss": None, "test_values": {}}, [], "train -"),
    ],
)
def test_a_line_has_progress_speed_and_what_was_measured(changes, workers, shown):
    found = line(evaluation(**changes), RunTotals(0, 0, 0, workers, Faults()), 1_234_567.8)
    assert found == f"   12.35 s  epoch 1.50  1,234,568 rows/s  {shown}"


@pytest.mark.parametrize("quiet", [True, False])
def test_the_speed_is_that_since_the_last_line(quiet):
    stream = io.StringIO()
    live = PlainConsole(quiet, stream, "a: ")
    live.say("hello")
    for seconds, rows in ((2.0, 1000), (4.0, 6000), (4.0, 6000)):
        live.report(evaluation(seconds=seconds, rows=rows), STANDING)
    hello, *lines = stream.getvalue().splitlines() or [""]
    assert hello == ("" if quiet else "a: hello")
    speeds = ["500 rows/s", "2,500 rows/s", "0 rows/s"]
    assert [text.split("  ")[-6] for text in lines] == ([] if quiet else speeds)


def test_a_line_is_flushed():
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
