"""Measuring a merge on a GPU changes nothing."""

import pytest
from numpy.testing import assert_array_equal

from hogbatch.store.merge import MERGE_RULES
from hogbatch.workers.trainer import UNSHUFFLED, Trainer
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, WIDE
from tests.support.pairs import pairs

pytestmark = pytest.mark.gpu

BATCH = 32


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache directory of profiles, initially empty."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    return tmp_path / "profiles"


@pairs(data={"dense": {}, "wide": WIDE}, merge=list(MERGE_RULES))
def test_measuring_a_merge_does_not_change_the_shared_memory(make_cuda, data, merge):
    given = assignment(examples(ROWS, **data), merge=merge, optimizer="adagrad")
    given.model.params[::3] = -0.0
    before = given.model.memory.copy()
    trainer = Trainer(make_cuda(), given)
    by_rows = trainer.exchange_touched_rows() if data else False
    assert by_rows == (bool(data) and MERGE_RULES[merge].additive)
    if not by_rows:
        trainer.replica.exchange_all()
    trainer.follow(UNSHUFFLED)
    cost = trainer.replica.measure_merge(trainer.rows(0, BATCH))
    trainer.device.synchronize()
    assert_array_equal(given.model.memory, before)
    assert cost.blocking > 0 and cost.background > 0
