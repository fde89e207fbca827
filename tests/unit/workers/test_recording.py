"""What workers record of their updates."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.compute.thread_state import thread_state
from hogbatch.kernels.contract import ROWS, UPDATES
from hogbatch.telemetry.update_log import Kind, read_file
from hogbatch.wire.messages import Work
from tests.support.assignments import WIDE_ROWS, assignment, examples, wide
from workers import recording
from workers.cpu import CpuEngine

TRAIN_ROWS = 50


def narrow(**settings):
    return assignment(examples(TRAIN_ROWS, **settings))


def compute(engine, *given):
    """The totals of rows that thread 0 trains on, recorded if its updates are recorded."""
    thread = thread_state(engine._assignment, 0)
    return engine._compute(*given, thread, engine._recorded(engine._loop))


@pytest.fixture
def recorded(tmp_path):
    """Prepares an engine of one thread that records, and reads its file."""

    def prepare(given):
        engine = CpuEngine(1)
        engine.prepare(replace(given, record_to=tmp_path / "updates"), lambda message: None)
        return engine, lambda: read_file(tmp_path / "updates" / "gpu-0.updates")

    return prepare


def of_kind(file, kind):
    return file.records[file.records["kind"] == kind]


@pytest.mark.parametrize("sparse", [False, True])
def test_every_batch_is_recorded_with_its_rows_and_times(recorded, sparse):
    engine, read = recorded(narrow(sparse=sparse))
    before = recording.now()
    totals = compute(engine, Work(7, "train", 1, 3, 14, 4, 0.5, 0, 2), 3, 14)
    after = recording.now()
    made = of_kind(read(), Kind.UPDATE)
    assert made[["start", "rows"]].tolist() == [(3, 4), (7, 4), (11, 3)]
    constant = made[["batch_size", "learning_rate", "epoch", "rollbacks", "number", "thread"]]
    assert set(constant.tolist()) == {(4, 0.5, 1, 2, 7, 0)}
    times = np.stack([made["begin"], made["end"]], axis=1).ravel()
    assert before < times[0] and times[-1] < after and (np.diff(times) > 0).all()
    assert totals[ROWS] == 11 and totals[UPDATES] == 3


@pytest.mark.parametrize("given", [narrow, wide], ids=["dense", "hashed"])
def test_a_recorded_engine_makes_the_same_model(recorded, given):
    plain, copy = given(), given()
    engine, _ = recorded(copy)
    other = CpuEngine(1)
    other.prepare(plain, lambda message: None)
    for each in (engine, other):
        compute(each, Work(1, "train", 0, 0, 50, 3, 0.1, 0), 0, 50)
    assert_array_equal(plain.model.params, copy.model.params)
    assert_array_equal(plain.model.first, copy.model.first)


def test_batches_of_a_revoked_lease_are_not_recorded(recorded):
    engine, read = recorded(narrow())
    engine._assignment.fence[0] = 1
    totals = compute(engine, Work(1, "train", 0, 0, 50, 4, 0.1, 0), 0, 50)
    assert not totals.any() and not len(of_kind(read(), Kind.UPDATE))


def test_records_are_written_in_blocks(recorded, monkeypatch):
    monkeypatch.setattr(recording, "BLOCK", 4)
    engine, read = recorded(narrow())
    counts = []
    train = engine._loop.train

    def count(*arguments):
        counts.append(len(of_kind(read(), Kind.UPDATE)))
        train(*arguments)

    engine._loop = engine._loop._replace(train=count)
    compute(engine, Work(1, "train", 0, 0, 50, 5, 0.1, 0), 0, 50)
    assert counts == [0] * 4 + [4] * 4 + [8] * 2
    assert of_kind(read(), Kind.UPDATE)["start"].tolist() == list(range(0, 50, 5))


def test_builds_of_hash_tables_are_recorded_between_updates(recorded):
    engine, read = recorded(wide(rehash=4))
    compute(engine, Work(1, "train", 0, 0, WIDE_ROWS, 6, 0.1, 0), 0, WIDE_ROWS)
    builds, made = of_kind(read(), Kind.BUILD), of_kind(read(), Kind.UPDATE)
    assert len(builds) == 3 and len(made) == 10  # the first tables, and after 4 and 8 updates
    assert made["end"][3] < builds["begin"][1] < builds["end"][1] < made["begin"][4]
    assert made["end"][7] < builds["begin"][2] < builds["end"][2] < made["begin"][8]


def test_nothing_is_recorded_without_the_flag(tmp_path):
    engine = CpuEngine(1)
    engine.prepare(narrow(), lambda message: None)
    assert engine._recording is None and engine._recorded(engine._loop) is engine._loop
