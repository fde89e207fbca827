"""Merges on a GPU: what they cost, what they transfer, and that measuring them changes nothing."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.store.merge import MERGE_RULES
from hogbatch.workers.trainer import UNSHUFFLED, Trainer
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, WIDE, Rehearsal, epochs

pytestmark = pytest.mark.gpu

BATCH = 32


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache directory of profiles, initially empty."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    return tmp_path / "profiles"


@pytest.mark.parametrize("data", [{}, WIDE], ids=["dense", "wide"])
@pytest.mark.parametrize("merge", MERGE_RULES)
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


@pytest.mark.parametrize("data", [{}, WIDE], ids=["dense", "wide"])
@pytest.mark.parametrize("merge_every", [0, 2])
def test_leases_report_what_merging_cost(make_cuda, data, merge_every):
    given = assignment(examples(ROWS, **data), merge_every=merge_every)
    rig, leases = Rehearsal(given, epochs(2, BATCH), make_cuda()), len(epochs(2, BATCH))
    nbytes = given.model.params.nbytes
    inputs = given.train.nbytes + 2 * 8 * ROWS  # the set, the order of the file and an epoch's
    for report in rig.hear(leases):
        assert report.updates > 0 and report.merge_seconds > 0 and report.transfer_seconds > 0
        merged = (3 * report.updates + 1) * nbytes
        assert 0 < report.transferred <= merged + inputs
        assert bool(data) or report.transferred >= 2 * report.updates * nbytes


def test_measurements_are_stored_and_loaded(make_cuda, cache):
    given = assignment(examples(ROWS))
    first = Rehearsal(given, device=make_cuda())
    (kept,) = cache.iterdir()
    written = kept.read_bytes()
    second = Rehearsal(given, device=make_cuda())
    assert second.profile == first.profile and kept.read_bytes() == written
    assert np.all(np.diff([rows for rows, _ in first.profile]) > 0)
