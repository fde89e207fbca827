import json
from typing import get_args

import numpy as np
import pytest

from hogbatch.events.event import (
    AnyEvent,
    Evaluation,
    Event,
    LeaseDone,
    OutOfMemory,
    Poisoned,
    Recovered,
    RowsOftenSkipped,
    RowsSkipped,
    Started,
    WorkersOfServer,
    read_event,
)
from tests.support.tracked_files import ROOT

LEASE = LeaseDone(0.5, 3, "gpu-0", 32, 2, rows=[0, 64], staleness=0.0, busy_seconds=0.25)


def line(event):
    return json.dumps({"event": event.name, "at": event.at, **event.fields}).encode()


def leaves(kind):
    below = kind.__subclasses__()
    return [leaf for each in below for leaf in leaves(each)] if below else [kind]


def test_the_log_is_a_union_of_all_events_which_the_documentation_lists():
    assert set(leaves(Event)) == set(get_args(AnyEvent))
    table = (ROOT / "docs/run-directory.md").read_text().partition("## Events\n")[2]
    names = {
        name for row in table.splitlines() for name in row.partition(" | ")[0].split("`")[1::2]
    }
    assert {kind.__struct_config__.tag for kind in get_args(AnyEvent)} <= names


def test_fields_have_their_order_and_are_left_out_where_they_do_not_apply():
    assert list(LEASE.fields) == [
        *("seconds", "epoch", "worker", "batch_size", "updates"),
        *("busy_seconds", "staleness", "rows"),
    ]
    assert OutOfMemory("gpu-0", 64, 32).fields == {"worker": "gpu-0", "from": 64, "to": 32}
    assert Recovered(1, np.float64(0.5)).fields == {"counted": 1, "rate_factor": 0.5}


@pytest.mark.parametrize(
    "event",
    [LEASE, OutOfMemory("gpu-0", 64, 32, at=2.0), Evaluation(1.0, 0.5, 9, None, 0.5, {"f": 1.0})],
    ids=lambda event: event.name,
)
def test_an_event_is_read_as_it_was_written(event):
    assert read_event(line(event)) == event


def test_events_of_other_versions_are_read():
    assert read_event(b'{"event": "invented", "at": 7, "worker": 3}') == Event(at=7.0)
    old = b'{"event": "started", "at": 1, "data": "a", "train_rows": 9, "test_rows": 0, '
    old += b'"sparse": false, "network": "1-1", "loss": "hinge", "rehearsed": "s", "servers": 2}'
    fields = {"data": "a", "train_rows": 9, "test_rows": 0, "sparse": False, "network": "1-1"}
    assert read_event(old) == Started(at=1.0, **fields, loss="hinge", rehearsed="s")
    nan = read_event(line(Evaluation(1.0, 0.5, 9, float("nan"), 0.5)))
    assert np.isnan(nan.train_loss), "Python's JSON has it"


@pytest.mark.parametrize(
    "damaged",
    [
        *(b"", b"{", b"[1]", b'{"at": 1}', b'{"event": "epoch", "epoch": 1, "rows": 2}', b"\xff"),
        b'{"event": "x", "at": "y"}',
        line(LEASE).replace(b"[0, 64]", b"[0]"),
        line(LEASE).replace(b"0.5", b'"x"'),
        b'{"event": "evaluation", "at": 1, "seconds": 3.0}',
        line(WorkersOfServer("server-0", [])).replace(b"[]", b'[{"name": "cpu-0"}]'),
        b'{"event": "server_workers", "at": 1, "worker": "server-0"}',
    ],
)
def test_a_damaged_line_is_no_event(damaged):
    assert read_event(damaged) is None


def test_texts_have_the_fields_as_in_the_log():
    assert LEASE.text == ""
    assert OutOfMemory("gpu-0", 64, 32).text == "gpu-0 ran out of memory: batch size 64 -> 32"
    assert Recovered(1, 0.25).text.endswith("now 25% of its configured value")
    skipped = RowsSkipped(0.5, 3, "cpu-0", 32, 2, rows=[0, 64], skipped=1, row=7)
    assert "1 of the rows [0, 64] of epoch 3" in skipped.text
    assert "'rows': [0, 64]" in Poisoned("w", 1, 5, [skipped.fields]).text


def test_a_warning_about_skipped_rows_names_their_number_and_the_rate():
    assert RowsOftenSkipped(1031, 10_000, 18, 0.0123456).text == (
        "1,031 of 10,000 rows had no finite gradient and were skipped (events.jsonl names some of "
        "them): scale features (--scale standard) and labels, or lower --lr, now 0.0123"
    )
