import math
import re
from itertools import takewhile

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from hogbatch.events.event import (
    CheckpointBegins,
    EvaluationBegins,
    WorkerCompiles,
    WorkerLost,
    WorkerParked,
)
from hogbatch.events.state import condition_of
from hogbatch.views.live.activity import Activity, running
from hogbatch.views.live.frame import Frame, curve
from tests.support.run_events import (
    ON_SERVERS,
    TRAINING,
    ended,
    evaluation,
    joined,
    lease,
    own_worker,
    ready,
    server_workers,
    started,
    state_after,
)

COMPILES = WorkerCompiles("cpu-0")


def drawn(run, size, encoding="utf-8", activity=None, elapsed=0.0):
    condition = condition_of(run, True)
    activity = activity or running(run, condition)
    return Frame(run, condition, activity, elapsed, size, encoding).lines()


def shown(*arguments, **options):
    """The lines of a frame as text."""
    return [line.plain for line in drawn(*arguments, **options)]


def line_of(first, run, size):
    (found,) = [line for line in shown(run, size) if line.startswith(first)]
    return found


@pytest.fixture
def long_run():
    """A run of two workers with thirty evaluations, a time limit and a target."""
    events = [joined(), joined("gpu-0", "gpu:0"), ready(), ready("gpu-0", 128)]
    for n in range(1, 31):
        events += [
            lease(0.5 * n, 0, 100),
            lease(0.5 * n, 100, 300, "gpu-0", 128, 2, staleness=3.5),
            evaluation(0.5 * n, 300 * n, 0.3 + 0.2 / n, train_loss=0.28 + 0.2 / n),
        ]
    return state_after(started(epochs=20, max_seconds=60.0, target_loss=0.303), *events)


@pytest.fixture
def short_run():
    """A run with one evaluation."""
    return state_after(*TRAINING)


@pytest.mark.parametrize(
    ("size", "encoding"),
    [
        *(((80, 24), "utf-8"), ((40, 10), "utf-8"), ((200, 60), "ascii"), ((40, 10), "ascii")),
        ((60, 20), "latin-1"),
    ],
)
def test_a_frame_fits_and_has_its_parts(long_run, size, encoding):
    lines = shown(long_run, size, encoding)
    assert len(lines) < size[1] and max(map(cell_len, lines)) < size[0]
    text = "\n".join(lines)
    for part in (
        "training",
        "epoch     9.00",
        "run       15.0 s of 60 s",
        "cpu-0",
        "gpu-0",
        "ready",
    ):
        assert part in text
    assert "accuracy  0." in text and "trains" in text
    assert text.isascii() == (encoding != "utf-8")
    assert ("▁▁▁" in text) == (encoding == "utf-8")
    assert ("target    validation loss 0.303  best 0.3067" in text) == (size[1] > 10)


def test_columns_without_room_or_values_are_left_out(long_run, short_run):
    narrow = line_of("worker", long_run, (40, 10))
    assert narrow.split() == ["worker", "batch", "updates", "rows/s"]
    assert line_of("worker", long_run, (80, 24)).split()[-1] == "stale"
    assert line_of("worker", short_run, (80, 24)).split()[-1] == "util."


@pytest.mark.parametrize(
    ("last", "state", "size"),
    [
        (WorkerLost("cpu-0", "was killed by signal 9"), "lost 2.0 s", (80, 24)),
        (WorkerParked("cpu-0", "too slow"), "parked", (40, 10)),
        (COMPILES, "compiles", (200, 60)),
    ],
)
def test_the_state_of_a_worker_is_shown(short_run, last, state, size):
    short_run.apply(last)
    assert line_of("cpu-0", short_run, size).endswith(state)


def table(run, size, encoding="utf-8"):
    """The first word of each line of the table of workers, with its indentation."""
    lines = shown(run, size, encoding)
    first = 1 + next(n for n, line in enumerate(lines) if line.startswith("worker"))
    rows = takewhile(lambda line: line and not line[0].isdigit(), lines[first:])
    return [re.match(r" *\S+", line).group() for line in rows]


@pytest.mark.parametrize(
    ("size", "encoding", "names"),
    [
        ((80, 24), "ascii", ["server-0", "  cpu-0", "  cpu-1", "  3", "server-1", "  gpu-0"]),
        ((60, 14), "utf-8", ["server-0", "  cpu-0", "server-1", "and"]),
        ((60, 13), "utf-8", ["server-0", "server-1", "and"]),
        ((40, 10), "ascii", ["server-0", "server-1"]),
    ],
)
def test_workers_of_servers_are_beneath_them_and_the_first_to_be_left_out(size, encoding, names):
    run = state_after(*ON_SERVERS, evaluation(2.0, 3840, 0.4))
    assert table(run, size, encoding) == names
    assert all(cell_len(line) < size[0] for line in shown(run, size, encoding))


def test_workers_of_servers_have_the_colours_of_workers():
    run = state_after(*ON_SERVERS, server_workers("server-0", own_worker(state="compiles")))
    (line,) = [line for line in drawn(run, (80, 24)) if line.plain.startswith("  cpu-0")]
    assert line.plain.endswith("compiles") and line.style == "yellow"


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((), "waiting for workers"),
        ((joined(),), "workers start"),
        ((joined(), COMPILES), "once per installation"),
        ((EvaluationBegins(rows=100),), "evaluating the model on 100 validation rows"),
        (
            (joined(), ready(), lease(1.0, 0, 400), CheckpointBegins(0, 400, 1.0)),
            "saving a checkpoint",
        ),
    ],
)
def test_the_activity_is_shown(events, text):
    lines = shown(state_after(started(), *events), (120, 24))
    assert lines[1].startswith("now     ") and text in lines[1]


def test_an_activity_has_a_bar_or_the_time_since_it_began(short_run):
    half = Activity("reading x.csv", 0.5, "5 MB of 10 MB")
    line = shown(short_run, (80, 24), activity=half)[1]
    full, empty = line.count("━"), line.count("─")
    assert "reading x.csv   50%  5 MB of 10 MB  " in line and abs(full - empty) < 2 < full
    line = shown(short_run, (80, 24), activity=Activity("waiting"), elapsed=75.3)[1]
    assert line == "now       waiting  1 min 15 s"


def test_the_last_frame_says_how_the_run_has_ended(long_run):
    long_run.apply(ended("target", rows=9000, seconds=15.0))
    lines = shown(long_run, (80, 24))
    assert lines[0] == "finished: the target loss is reached"
    assert not any(word in "\n".join(lines) for word in ("now", "target  ", "left"))


def test_the_latest_losses_are_shown_if_there_are_any(short_run):
    last = short_run.history[-1]
    short_run.history.append(replace(last, validation_loss=None, validation_values={}, seconds=3.0))
    text = "\n".join(shown(short_run, (80, 24)))
    assert "train     0.5000" in text and "test      0" not in text


def test_the_noise_scale_is_shown_if_it_is_known(short_run):
    assert "noise" not in "\n".join(shown(short_run, (80, 24)))
    short_run.history.append(replace(short_run.history[-1], noise_scale=1234.5, noise_error=90.0))
    assert any(line.startswith("noise     1,234") for line in shown(short_run, (80, 24)))


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([n / 7 for n in range(8)], "▁▂▃▄▅▆▇█"),
        ([3.0, 2.0, 1.0], "█▅▁"),
        ([5.0] * 3, "▁▁▁"),
        ([0.0, math.nan, 1.0, math.inf], "▁ █ "),
        ([math.nan], " "),
        (range(1000), "▁▂▃▄▅▆▇█"),
    ],
)
def test_a_curve_ends_with_the_last_value(values, drawn):
    assert curve(values, 8) == drawn


def test_the_errors_of_a_regression_are_in_the_unit_of_the_labels():
    values = {"validation_values": {"rmse": 18973.67}}
    found = evaluation(2.0, 1000, 180e6, train_loss=200e6, **values)
    run = state_after(started(loss="squared"), joined(), ready(), lease(2.0, 0, 1000), found)
    lines = [line.split()[:2] for line in shown(run, (80, 24))]
    assert ["rmse", "18,974"] in lines and ["train", "20,000"] in lines
    assert not any(line[:1] == ["validated"] for line in lines)
