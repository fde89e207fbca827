"""Frames of random runs fit into the terminal, whatever has happened."""

from hypothesis import given, strategies as st
from rich.cells import cell_len

from hogbatch.events.event import EvaluationBegins, WorkerCompiles, WorkerLost
from hogbatch.events.state import RunState, condition_of
from hogbatch.views.live.activity import Activity, running
from hogbatch.views.live.frame import Frame
from tests.support.property_tests import max_examples
from tests.support.run_events import (
    ended,
    evaluation,
    joined,
    lease,
    own_worker,
    ready,
    server_workers,
    started,
)

NAMES = st.sampled_from(["cpu-0", "gpu-0", "w" * 60, "数据" * 9, "\x1b[2J\n"]) | st.text(max_size=9)
NUMBERS = st.integers(0, 10**12)
SECONDS = st.floats(0, 1e7)
LOSS = st.none() | st.floats(0, 1e9)
EVENTS = st.one_of(
    st.builds(
        lambda data, limit, target: started(data=data, max_seconds=limit, target_loss=target),
        NAMES,
        st.none() | SECONDS,
        LOSS,
    ),
    st.builds(joined, NAMES, NAMES),
    st.builds(ready, NAMES, NUMBERS),
    st.builds(
        lambda at, rows, name, n: lease(at, 0, rows, name, n), SECONDS, NUMBERS, NAMES, NUMBERS
    ),
    st.builds(
        lambda at, rows, loss, name: evaluation(at, rows, loss, validation_values={name: 0.5}),
        *(SECONDS, NUMBERS, LOSS, NAMES),
    ),
    st.builds(WorkerLost, NAMES, NAMES),
    st.builds(WorkerCompiles, NAMES),
    st.builds(EvaluationBegins, rows=NUMBERS),
    st.builds(lambda why: ended("failed", why), NAMES),
    st.builds(
        lambda server, own, rows, n: server_workers(
            server, *(own_worker(name, rows) for name in own), others=n
        ),
        *(NAMES, st.lists(NAMES, max_size=16), NUMBERS, NUMBERS),
    ),
)
SIZES = st.tuples(st.integers(0, 250), st.integers(0, 80))
ENCODINGS = st.sampled_from(["utf-8", "ascii", "latin-1"])
ACTIVITIES = st.none() | st.builds(
    Activity, NAMES, st.none() | st.floats(0, 1), st.sampled_from([None, "5 MB of 10 MB"])
)


@max_examples(300)
@given(st.lists(EVENTS, max_size=40), SIZES, ENCODINGS, ACTIVITIES, st.sampled_from([True, None]))
def test_every_frame_is_smaller_than_the_terminal(events, size, encoding, activity, exists):
    run = RunState()
    for each in events:
        run.apply(each)
    condition = condition_of(run, exists)
    frame = Frame(run, condition, activity or running(run, condition), 5.0, size, encoding)
    lines = [line.plain for line in frame.lines()]
    assert len(lines) < max(1, size[1])
    assert all(cell_len(line) < max(1, size[0]) for line in lines)
    assert all(line.isprintable() for line in lines)
    "".join(lines).encode(encoding)
