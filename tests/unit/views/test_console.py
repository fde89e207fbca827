import io
import os

import pytest

from hogbatch.views.console import PlainConsole, figure, line, result_parts
from tests.support import tracked_runs
from tests.support.run_events import started
from tests.support.tracked_runs import worker

FIELDS = {"seconds": 12.345, "epochs": 1.5, "train_loss": 0.4, "validation_loss": 0.3}
FIELDS["validation_values"] = {"accuracy": 0.8512}
WORKERS = [
    worker(batch_size=16, update_share=0.251),
    worker("gpu-0", batch_size=4096, update_share=0.749),
]


def evaluation(**changes):
    return tracked_runs.evaluation(**FIELDS | changes)


@pytest.mark.parametrize(
    ("changes", "workers", "shown"),
    [
        (
            {"utilization": {"gpu-0": 0.527, "cpu-1": 0.5}},
            WORKERS,
            "accuracy 0.8512  validation 0.3000  train 0.4000  cpu-0 batch 16 updates 25%  "
            "gpu-0 batch 4096 updates 75% utilization 53%",
        ),
        ({"train_loss": None, "validation_loss": None, "validation_values": {}}, [], "train -"),
    ],
)
def test_a_line_has_progress_speed_and_what_was_measured(changes, workers, shown):
    found = line(evaluation(**changes), workers, 1_234_567.8)
    assert found == f"   12.35 s  epoch 1.50  1,234,568 rows/s  {shown}"


@pytest.mark.parametrize("quiet", [True, False])
def test_the_speed_is_that_since_the_last_line_if_that_is_not_much_shorter_ago_than_usual(quiet):
    stream = io.StringIO()
    live = PlainConsole(quiet, stream, "a: ")
    live.say("hello")
    for seconds, rows in ((2.0, 1000), (4.0, 6000), (4.1, 6001), (4.2, 6201)):
        live.event(evaluation(seconds=seconds, rows=rows), WORKERS)
    hello, *lines = stream.getvalue().splitlines() or [""]
    assert hello == ("" if quiet else "a: hello")
    speeds = ["500 rows/s", "2,500 rows/s", "epoch 1.50", "2,000 rows/s"]
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
    live.event(evaluation(), WORKERS)
    stream.close()


def test_what_a_terminal_cannot_show_is_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PlainConsole(quiet=False, stream=stream).say("a\x1b[31m\nbö\udcff")
    assert stream.buffer.getvalue() == b"a\\x1b[31m\nb\\xf6\\udcff\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.32254, "0.3225"),
        (0.0, "0.0000"),
        (9.87654, "9.8765"),
        (12.3456, "12.346"),
        (21317.04, "21,317"),
        (-21317.04, "-21,317"),
        (227210170.9756, "227,210,171"),
        (1.5e15, "1.5e+15"),
        (0.00004125, "4.125e-05"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (None, "-"),
    ],
)
def test_a_figure_has_sensible_digits_in_any_unit(value, shown):
    assert figure(value) == shown


def test_losses_of_a_regression_are_errors_in_the_unit_of_the_labels():
    found = evaluation(
        train_loss=200e6, validation_loss=180e6, validation_values={"rmse": 18973.67}
    )
    assert result_parts(found, "squared") == ["rmse 18,974", "train rmse 20,000"]
    assert result_parts(found, "of another version")[1:] == [
        "validation 180,000,000",
        "train 200,000,000",
    ]
    stream = io.StringIO()
    console = PlainConsole(quiet=False, stream=stream)
    console.event(started(loss="squared"))
    console.event(found)
    assert "  rmse 18,974  train rmse 20,000" in stream.getvalue()
