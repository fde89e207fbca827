"""Teams of threads in a CPU worker."""

import math
import queue

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.machine.topology import Topology
from hogbatch.wire.messages import Done, Lease, Ready
from hogbatch.workers import cpu, team
from hogbatch.workers.compute import measured_batches
from hogbatch.workers.cpu import CpuEngine
from tests.support.assignments import assignment, examples
from tests.unit.workers.conftest import WITHIN_S

ROWS, BATCH = 90, 8
LEASES = [(0, 40), (40, 90)]  # the last batch is smaller
kinds_of_data = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


class Rig:
    """An engine on some rows, with this test as its session."""

    def __init__(self, threads, *, teams=1, sparse=False, cores=(), **settings):
        train = examples(ROWS, sparse=sparse)
        settings = {"optimizer": "adagrad", "hidden": (16, 8), **settings}
        test = examples(70, sparse=sparse, seed=2)
        self.given = assignment(train, test, cpu_teams=teams, **settings)
        self.posts = queue.SimpleQueue()
        self.engine = CpuEngine(threads, cores)
        self.ready = self.engine.prepare(self.given, self.posts.put)

    def do(self, start, stop, **changes):
        """What the engine posts after these rows of the epoch."""
        lease = Lease(1, "train", 0, start, stop, BATCH, 0.1, 0)
        self.engine.submit(msgspec.structs.replace(lease, **changes))
        return self.posts.get(timeout=WITHIN_S)

    def train(self):
        return [self.do(*lease) for lease in LEASES]


@pytest.mark.parametrize("threads", [2, 5])
def test_a_team_trains_as_one_thread_does(threads):
    alone, together = Rig(1), Rig(threads)
    assert alone.ready == Ready(alone.ready.profile, teams=1, members=1)
    assert together.ready == Ready(together.ready.profile, teams=1, members=threads)
    for one, other in zip(alone.train(), together.train(), strict=True):
        assert isinstance(other, Done)
        assert (other.rows, other.updates) == (one.rows, one.updates)
        assert other.loss == pytest.approx(one.loss, rel=1e-4)
    assert_allclose(together.given.model.params, alone.given.model.params, rtol=0, atol=1e-4)
    assert_allclose(together.given.model.first, alone.given.model.first, rtol=0, atol=1e-4)
    assert together.given.model.steps[0] == alone.given.model.steps[0] == 12


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_of_several_sizes_are_measured_on_a_copy_of_the_model(threads, monkeypatch):
    monkeypatch.setattr(measured_batches, "MAX_CPU_SECONDS", math.inf)
    rig = Rig(threads)
    rows, seconds = zip(*rig.ready.profile, strict=True)
    assert rows == (8, 4, 2, 1) and min(seconds) > 0
    untouched = assignment(examples(ROWS), hidden=(16, 8), optimizer="adagrad").model
    assert_array_equal(rig.given.model.params, untouched.params)
    assert_array_equal(rig.given.model.first, untouched.first)
    assert rig.given.model.steps[0] == 0


@kinds_of_data
def test_a_team_evaluates_as_one_thread_does(sparse):
    one, other = (Rig(count, sparse=sparse).do(0, 70, task="test") for count in (1, 3))
    assert other.rows == one.rows == 70 and other.updates == 0
    assert other.loss == pytest.approx(one.loss, rel=1e-5)
    assert_allclose(other.metric_sums, one.metric_sums, rtol=1e-5)


@pytest.mark.parametrize(
    ("threads", "teams", "sparse", "found"),
    [(4, 2, False, (2, 2)), (5, 2, True, (2, 2)), (3, 3, True, (3, 1)), (3, 0, False, (3, 1))],
)
def test_several_teams_share_a_lease(threads, teams, sparse, found):
    rig = Rig(threads, teams=teams, sparse=sparse)  # not pinned: no team by default
    assert (rig.ready.teams, rig.ready.members) == found
    assert sum(done.rows for done in rig.train()) == ROWS
    assert rig.given.model.steps[0] > 0 and np.isfinite(rig.given.model.params).all()


@pytest.mark.parametrize(("smt", "members"), [(False, 2), (True, 1)])
def test_pinned_threads_are_a_team_of_a_thread_per_physical_core(smt, members, monkeypatch):
    pinned, cores = set(), frozenset({0, 1})
    siblings = (cores,) if smt else (frozenset({0}), frozenset({1}))
    monkeypatch.setattr(cpu, "read_topology", lambda: Topology(cores, (cores,), siblings))
    for module in (cpu, team):
        monkeypatch.setattr(module, "pin", pinned.add)
    rig = Rig(2, teams=0, cores=(0, 1))
    assert (rig.ready.teams, rig.ready.members) == (1, members)
    rig.train()
    assert pinned == set(range(members))


def test_a_member_that_fails_ends_the_lease_with_its_error(monkeypatch):
    rig = Rig(3)
    train = team.compiled.train

    def fails(*arguments):
        if arguments[-1] == 2:
            raise MemoryError("no memory for member 2")
        train(*arguments)

    monkeypatch.setattr(team.compiled, "train", fails)
    error = rig.do(*LEASES[0])
    assert isinstance(error, MemoryError) and "member 2" in str(error)


def test_a_revoked_lease_has_failed_and_changes_nothing():
    rig = Rig(3)
    before = rig.given.model.params.copy()
    rig.given.fence[0] += 1
    assert "revoked after 0 rows" in rig.do(*LEASES[0]).reason
    assert_array_equal(rig.given.model.params, before)
    assert isinstance(rig.do(*LEASES[0], fence=1), Done)


def test_batches_of_any_size_follow_each_other():
    rig = Rig(3)
    for batch in (1, 2, 64, 5, 90):
        assert rig.do(0, ROWS, batch_size=batch).updates == -(-ROWS // batch)
