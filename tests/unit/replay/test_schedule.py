"""The order of recorded reads and writes."""

from pathlib import Path

import numpy as np
import pytest

from hogbatch.replay.schedule import MOMENTS, Moment, Schedule, Step
from hogbatch.telemetry.update_log import Kind, LogHeader, UpdateFile, record
from hogbatch.version import version

HEADER = LogHeader(version(), "run", "cpu-0", 0, "cpu", 2, 17)


def file(*records):
    return UpdateFile(Path("cpu-0.updates"), HEADER, np.concatenate(records))


def update(begin, end, **fields):
    return record(Kind.UPDATE, begin, end, rows=1, batch_size=1, **fields)


def test_steps_are_in_order_of_time_across_files():
    schedule = Schedule([file(update(10, 30), update(40, 50)), file(update(20, 45))])
    assert [(step.at, step.moment.name, step.file, step.record) for step in schedule] == [
        (10, "BEGIN", 0, 0),
        (20, "BEGIN", 1, 0),
        (30, "END", 0, 0),
        (40, "BEGIN", 0, 1),
        (45, "END", 1, 0),
        (50, "END", 0, 1),
    ]
    assert schedule.updates == 3 and schedule.overlapping


def test_at_the_same_time_a_write_comes_before_a_read():
    schedule = Schedule([file(update(10, 20)), file(update(20, 30))])
    assert list(schedule)[1:3] == [Step(20, Moment.END, 0, 0), Step(20, Moment.BEGIN, 1, 0)]
    assert not schedule.overlapping


def test_merges_count_as_updates_and_as_overlapping():
    merge = record(Kind.MERGE, 10, 20, rows=1, batch_size=1)
    schedule = Schedule([file(update(1, 2), merge, record(Kind.FETCH, 21, 22))])
    assert schedule.updates == 2 and schedule.overlapping
    assert [step.at for step in schedule] == [1, 2, 20, 21]


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_an_effect(kind):
    assert MOMENTS[kind]
    assert len(Schedule([file(record(kind, 1, 2))])) == len(MOMENTS[kind])


def test_no_records_are_an_empty_schedule():
    schedule = Schedule([])
    assert not list(schedule) and not schedule.overlapping and schedule.updates == 0


def test_stages_run_between_the_begin_and_the_end_of_their_batch():
    files = [file(update(10, 30)), file(update(20, 45), record(Kind.SNAPSHOT, 22, 23))]
    schedule = Schedule(files, [0.25, 0.75, 1.0])
    assert [(step.at, step.moment.name, step.file) for step in schedule] == [
        (10, "BEGIN", 0),
        (15, "STAGE", 0),
        (20, "BEGIN", 1),
        (22, "BEGIN", 1),  # of the snapshot
        (25, "STAGE", 0),
        (26, "STAGE", 1),
        (29, "STAGE", 0),
        (30, "END", 0),
        (38, "STAGE", 1),
        (44, "STAGE", 1),
        (45, "END", 1),
    ]
    assert schedule.updates == 2 and schedule.overlapping
    assert not Schedule([file(update(10, 20), update(20, 30))], [0.5]).overlapping
