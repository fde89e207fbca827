import re
from dataclasses import replace
from itertools import takewhile

import pytest
from rich.cells import cell_len

from hogbatch.events.event import (
    CheckpointBegins,
    EvaluationBegins,
    WorkerCompiles,
    WorkerLost,
    WorkerParked,
)
from hogbatch.views.live.activity import Activity, running
from hogbatch.views.live.capabilities import Capabilities, Size
from hogbatch.views.live.frame import View, frame
from tests.unit.views.live.conftest import SIZES, in_progress
from tests.unit.views.status.conftest import (
    ON_SERVERS,
    ended,
    evaluation,
    event,
    joined,
    lease,
    own_worker,
    ready,
    server_workers,
    started,
    state_after,
)

ABLE = Capabilities(colour=True, unicode=True)
LEASED = (started(), joined(), ready(), lease(1.0, 0, 400))
ASCII = Capabilities(colour=False, unicode=False)


def shown(run, size, able=ABLE, activity=None, elapsed=0.0):
    """The lines of a frame as text."""
    condition = in_progress(run)
    view = View(run, condition, activity or running(run, condition), elapsed)
    return [line.plain for line in frame(view, Size(*size), able)]


@pytest.mark.parametrize(
    "able", [ABLE, ASCII, Capabilities(True, False), Capabilities(False, True)]
)
@pytest.mark.parametrize("size", SIZES)
def test_a_frame_fits_and_has_its_parts(long_run, size, able):
    lines = shown(long_run, size, able)
    assert len(lines) < size[1] and max(map(cell_len, lines)) < size[0]
    text = "\n".join(lines)
    for part in ("training", "epoch   9.00", "run     15.0 s of 60 s", "cpu-0", "gpu-0", "ready"):
        assert part in text
    assert "test 0.3067" in text and "trains" in text
    assert text.isascii() == (not able.unicode)
    assert any("⠑" in line or "⠉" in line for line in lines) == (able.unicode and size[1] > 10)
    assert ("target  test loss 0.303  best 0.3067" in text) == (size[1] > 10)


def test_a_narrow_terminal_omits_the_less_important_columns(long_run):
    (header,) = [line for line in shown(long_run, (40, 10)) if line.startswith("worker")]
    assert header.split() == ["worker", "batch", "updates", "rows/s"]
    (header,) = [line for line in shown(long_run, (80, 24)) if line.startswith("worker")]
    assert header.split()[-1] == "stale"


def test_staleness_has_no_column_without_gpus(short_run):
    (header,) = [line for line in shown(short_run, (80, 24)) if line.startswith("worker")]
    assert header.split()[-1] == "util."


@pytest.mark.parametrize(
    ("last", "states"),
    [
        (event(WorkerLost, "cpu-0", "was killed by signal 9"), "lost 2.0 s"),
        (event(WorkerParked, "cpu-0", "too slow"), "parked"),
        (event(WorkerCompiles, "cpu-0"), "compiles"),
    ],
)
@pytest.mark.parametrize("size", SIZES)
def test_the_state_of_a_worker_is_shown(short_run, size, last, states):
    short_run.apply(last)
    (line,) = [line for line in shown(short_run, size) if line.startswith("cpu-0")]
    assert line.endswith(states)


def test_workers_without_room_are_counted():
    names = [f"cpu-{n}" for n in range(30)]
    run = state_after(started(), *map(joined, names), *map(ready, names))
    lines = shown(run, (80, 24))
    first, *rows = [line for line in lines if line.startswith(("cpu-", "and "))]
    assert first.startswith("cpu-0") and rows[-1] == f"and {30 - len(rows)} more"


def table(run, size, able=ABLE):
    """The first word of each line of the table of workers, with its indentation."""
    lines = shown(run, size, able)
    first = 1 + next(n for n, line in enumerate(lines) if line.startswith("worker"))
    rows = takewhile(lambda line: line and not line[0].isdigit(), lines[first:])
    return [re.match(r" *\S+", line).group() for line in rows]


@pytest.mark.parametrize("able", [ABLE, ASCII])
@pytest.mark.parametrize(
    ("size", "names"),
    [
        ((200, 60), ["server-0", "  cpu-0", "  cpu-1", "  3", "server-1", "  gpu-0"]),
        ((80, 24), ["server-0", "  cpu-0", "  cpu-1", "  3", "server-1", "  gpu-0"]),
        ((60, 20), ["server-0", "  cpu-0", "  cpu-1", "  3", "server-1", "  gpu-0"]),
        ((60, 15), ["server-0", "  cpu-0", "server-1", "and"]),
        ((60, 14), ["server-0", "server-1", "and"]),
        ((40, 10), ["server-0", "server-1"]),
    ],
)
def test_workers_of_servers_are_beneath_them_and_the_first_to_be_left_out(size, names, able):
    run = state_after(*ON_SERVERS, evaluation(2.0, 3840, 0.4))
    assert table(run, size, able) == names
    assert all(cell_len(line) < size[0] for line in shown(run, size, able))


def test_workers_of_servers_without_room_are_counted():
    own = [own_worker(f"cpu-{n}") for n in range(16)]
    run = state_after(*ON_SERVERS, server_workers("server-1", *own, others=7))
    names = table(run, (80, 24))
    lines = shown(run, (80, 24))
    assert names[:5] == ["server-0", "  cpu-0", "  cpu-1", "  3", "server-1"]
    beneath = len(names) - 6
    assert names[-1] == "and" and f"and {16 - beneath + 7} more" in lines
    first = names[5:-1]
    assert first == [f"  cpu-{n}" for n in range(beneath)] and first


def test_many_servers_are_shown_before_their_workers():
    names = [f"server-{n}" for n in range(20)]
    own = (server_workers(name, own_worker(), own_worker("cpu-1")) for name in names)
    run = state_after(started(), *map(joined, names), *map(ready, names), *own)
    *rows, last = table(run, (80, 24))
    assert last == "and" and rows == names[: len(rows)] and len(rows) > 5
    assert f"and {60 - len(rows)} more" in shown(run, (80, 24))


@pytest.mark.parametrize(("state", "style"), [("parked", "dim"), ("compiles", "yellow")])
def test_workers_of_servers_have_the_colours_of_workers(state, style):
    run = state_after(*ON_SERVERS, server_workers("server-0", own_worker(state=state)))
    view = View(run, in_progress(run), None, 0.0)
    (line,) = [line for line in frame(view, Size(80, 24), ABLE) if line.plain.startswith("  cpu-0")]
    assert line.plain.endswith(state) and line.style == style


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((started(),), "waiting for workers"),
        ((started(), joined()), "workers start"),
        ((started(), joined(), event(WorkerCompiles, "cpu-0")), "once per installation"),
        (
            (started(), event(EvaluationBegins, rows=100)),
            "evaluating the model on 100 test rows",
        ),
        (
            (started(), event(EvaluationBegins, of="train", rows=400)),
            "evaluating the model on 400 training rows",
        ),
        (
            (*LEASED, event(CheckpointBegins, 0, 400, 1.0)),
            "saving a checkpoint",
        ),
    ],
)
def test_the_activity_is_shown(events, text):
    lines = shown(state_after(*events), (120, 24))
    assert lines[1].startswith("now     ") and text in lines[1]


def test_an_activity_has_a_bar_or_the_time_since_it_began(short_run):
    half = Activity("reading x.csv", 0.5, "5 MB of 10 MB")
    line = shown(short_run, (80, 24), activity=half)[1]
    assert line.endswith("  50%  5 MB of 10 MB") and abs(
        line.count("━") - line.count("─")
    ) < 2 < line.count("━")
    line = shown(short_run, (80, 24), activity=Activity("waiting"), elapsed=75.3)[1]
    assert line == "now     waiting  1 min 15 s"


def test_the_last_frame_says_how_the_run_has_ended(long_run):
    long_run.apply(ended("target", rows=9000, seconds=15.0))
    lines = shown(long_run, (80, 24))
    assert lines[0] == "finished: the target loss is reached"
    text = "\n".join(lines)
    assert "now" not in text and "target  " not in text and "left" not in text


def test_text_of_the_run_can_do_no_harm():
    bad = "\x1b[31m[bold]x\x1b]0;title\x07\n"
    run = state_after(
        started(data=bad), joined(bad, bad), ready(bad), lease(1.0, 0, 400, bad),
        evaluation(1.0, 400, 0.4, test_values={bad: 0.5}),
        event(WorkerLost, bad, bad),
    )  # fmt: skip
    for able in (ABLE, ASCII):
        text = "\n".join(shown(run, (200, 60), able))
        assert "[bold]x" in text and "\\x1b[31m" in text
        assert all(line.isprintable() for line in text.split("\n"))


def test_wide_characters_count_twice():
    run = state_after(started(data="数" * 100))
    assert max(map(cell_len, shown(run, (80, 24)))) == 79
    assert "\\u6570" in shown(run, (80, 24), ASCII)[0]


def test_a_terminal_that_became_too_small_has_one_line(long_run):
    assert len(shown(long_run, (30, 10))) == 1
    assert len(shown(long_run, (60, 3))) == 1
    assert shown(long_run, (60, 1)) == []


def test_all_metrics_of_a_run_without_test_set_are_left_out(short_run):
    short_run.history.append(
        replace(short_run.history[-1], test_loss=None, test_values={}, seconds=3.0)
    )
    text = "\n".join(shown(short_run, (80, 24)))
    assert "train 0.5000" in text and "test 0" not in text


def test_the_latest_exact_training_loss_is_shown(short_run):
    last = short_run.history[-1]
    short_run.history += [replace(last, exact_train_loss=0.375), replace(last, seconds=3.0)]
    assert "exact 0.3750" in "\n".join(shown(short_run, (80, 24)))
