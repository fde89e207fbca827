"""A rehearsed CPU worker: leases, batches and reports at simulated times."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from hogbatch.simulate.rehearsal import cpu
from hogbatch.simulate.rehearsal.cores import Cores, Noise
from hogbatch.simulate.rehearsal.cpu import RehearsedCpu
from hogbatch.wire.messages import Failed, Lease
from hogbatch.workers import noise
from hogbatch.workers.compute.teams import Teams
from tests.support.assignments import wide
from tests.support.simulated_host import SimulatedHost
from tests.unit.simulate.rehearsal.conftest import concurrent, given

ROW_S, EVALUATED_ROW_S = 0.001, 0.0001
STAGES = 6  # of the networks with three layers


class FixedCost:
    """Batches in proportion to their rows."""

    def train_seconds(self, rows, stored, active=0, found=0.0):
        return rows * ROW_S

    def stage_seconds(self, rows, stored, active=0, found=0.0):
        return (rows * ROW_S / STAGES,) * STAGES

    def evaluate_seconds(self, rows, stored):
        return rows * EVALUATED_ROW_S

    def rebuild_seconds(self, outputs):
        return 0.01


class FixedBackboneCost(FixedCost):
    """The backward passes take half of the time, its update next to nothing."""

    def stage_seconds(self, rows, stored, active=0, found=0.0):
        return tuple(rows * ROW_S * part for part in (0.25, 0.245, 0.5, 0.005))


class FixedTeamCost(FixedCost):
    """The first phase takes half of the time, and so do the updates of all layers."""

    def stage_seconds(self, rows, stored, active=0, found=0.0):
        half = rows * ROW_S / 2
        return (half, *(2 * [half / 4]), half / 2)


class Driver:
    """An engine in a host, on an assignment of `kind`."""

    def __init__(self, kind="dense", threads=2, cores=4, background=False, members=1, alone=False):
        self.assignment = given(kind)
        self.assignment = replace(
            self.assignment, sets={"train": self.assignment.train, "test": self.assignment.train}
        )
        if background:
            self.assignment = wide(sparse=True, optimizer="sgd", background=True)
        self.host = SimulatedHost(self.assignment)
        model = concurrent(self.assignment, alone=alone)
        noise, teams = Noise(Random(0), 0.0), Teams(threads // members, members)
        cost = FixedCost() if members == 1 else FixedTeamCost()
        cost = FixedBackboneCost() if kind == "backbone" else cost
        self.engine = RehearsedCpu(
            *(threads, teams, cost, model, lambda welcome: self.assignment, noise),
            *(Cores(cores, 0.003, self.host.queue), 0, threads),
        )
        _, self.ready = self.engine.prepare(self.assignment.welcome, self.host)
        assert (self.ready.teams, self.ready.members) == (teams.count, members)

    def submit(self, start, stop, batch=5, lease=1, **fields):
        usual = {"task": "train", "epoch": 0, "learning_rate": 0.05, "fence": 0}
        work = Lease(number=lease, start=start, stop=stop, batch_size=batch, **usual | fields)
        self.engine.submit(work)

    @property
    def params(self):
        return self.assignment.model.params

    def layers_updated(self, before):
        """Which layers have other parameters than `before`."""
        starts = [view.weights for view in self.assignment.network.layer_views()]
        ranges = pairwise([*starts, len(before)])
        return [bool((self.params[a:b] != before[a:b]).any()) for a, b in ranges]


@pytest.mark.parametrize("given", [{}, {"members": 2}, {"kind": "hashed"}])
def test_the_batches_that_a_worker_measures_are_predicted(given):
    profile = Driver(**given).ready.profile
    assert profile == tuple((rows, rows * ROW_S) for rows in (8, 4, 2, 1))


def test_a_worker_with_a_large_model_measures_nothing(monkeypatch):
    monkeypatch.setattr(cpu, "MAX_CPU_MODEL_BYTES", 1000)
    assert Driver().ready.profile == ()


def test_threads_share_leases_that_follow_each_other_without_a_pause():
    driver = Driver()
    driver.submit(0, 20)
    driver.submit(20, 40, lease=2)
    driver.host.run()
    for number, (at, done) in enumerate(driver.host.posted, 1):
        assert (done.rows, done.updates, done.lease) == (20, 4, number)
        assert done.seconds == pytest.approx(10 * ROW_S)
        assert at == pytest.approx(number * 10 * ROW_S)
        assert done.loss > 0
    assert len(driver.host.posted) == 2


@pytest.mark.parametrize(
    ("members", "shortest", "parts"),
    [
        # In the middle of backward passes, each a sixth of the batch.
        (1, 5e-5, [(0.57, 0), (0.6, 1), (0.73, 1), (0.76, 2), (0.9, 2), (0.93, 3)]),
        (1, 1, [(0.49, 0), (0.51, 3)]),
        (2, 5e-5, [(0.5, 0), (0.6, 1), (0.65, 1), (0.7, 2), (0.85, 2), (0.9, 3)]),  # second phase
        (2, 1, [(0.74, 0), (0.76, 3)]),
    ],
)
def test_layers_are_updated_last_to_first_in_the_middle_of_their_stages(
    monkeypatch, members, shortest, parts
):
    """Short stages run together, but the first phase of a team never with the second."""
    monkeypatch.setattr(cpu, "SHORTEST", shortest)
    driver = Driver(threads=2 * members, members=members)
    layers, before = len(driver.assignment.network.layer_views()), driver.params.copy()
    driver.submit(0, 5)
    for part, expected in parts:
        driver.host.run(part * 5 * ROW_S)
        assert driver.layers_updated(before) == [False] * (layers - expected) + [True] * expected
    assert not driver.host.posted
    driver.host.run()
    assert driver.host.posted[0][0] == pytest.approx(5 * ROW_S)


def test_a_backbone_is_updated_at_the_end_of_a_batch():
    driver = Driver("backbone")
    before, dense = driver.params.copy(), driver.assignment.network.layer_views()[0].weights
    driver.submit(0, 5)
    for part, expected in [(0.36, (0, 0)), (0.38, (0, 1)), (0.99, (0, 1)), (0.999, (1, 1))]:
        driver.host.run(part * 5 * ROW_S)
        changed = driver.params != before
        assert (changed[:dense].any(), changed[dense:].any()) == expected


def test_short_last_stages_run_with_the_one_before_them():
    long, short = 4 * cpu.SHORTEST, cpu.SHORTEST / 3
    assert cpu.next_pass([long, long, short, short], 1) == (4, pytest.approx(1.5 * long + short))


def test_a_worker_that_has_ended_computes_nothing_more():
    driver = Driver(threads=1)
    driver.submit(0, 40)
    driver.host.run(2.1 * 5 * ROW_S)
    driver.host.exit("killed")
    before = driver.params.copy()
    driver.host.run()
    np.testing.assert_array_equal(driver.params, before)


def test_a_revoked_lease_fails_and_changes_nothing_more():
    driver = Driver(threads=1)
    driver.submit(0, 40)
    driver.host.run(12 * ROW_S)  # two batches are done, the third is computed
    driver.assignment.fence[0] = 1
    driver.host.run()
    ((at, failed),) = driver.host.posted
    assert isinstance(failed, Failed) and "revoked after 15 rows" in failed.reason
    assert at == pytest.approx(15 * ROW_S)


def test_building_hash_tables_in_the_background_uses_a_core():
    def seconds(cores):
        driver = Driver(threads=1, cores=cores, background=True)
        driver.submit(0, 60)
        driver.host.run()
        ((_, done),) = driver.host.posted
        return done.seconds

    building = FixedCost().rebuild_seconds(0)
    assert seconds(cores=2) == pytest.approx(60 * ROW_S)
    assert seconds(cores=1) > 60 * ROW_S + building / 4


def test_a_batch_of_a_team_is_one_update():
    one, team = Driver(threads=1, alone=True), Driver(threads=3, members=3)
    for driver in (one, team):
        driver.submit(0, 20)
        driver.host.run()
        ((_, done),) = driver.host.posted
        assert (done.rows, done.updates) == (20, 4)
    np.testing.assert_allclose(team.params, one.params, rtol=0, atol=1e-6)


def test_a_team_waits_for_a_thread_that_shares_its_core():
    driver = Driver(threads=4, members=2, cores=3)  # threads 0 and 3 share a core
    driver.submit(0, 5)
    driver.submit(5, 10, lease=2)
    driver.host.run()
    for at, _ in driver.host.posted:  # 5 rows each on cores of their own
        assert 7 * ROW_S < at < 11 * ROW_S


@pytest.mark.parametrize(("kind", "members"), [("dense", 1), ("dense", 2), ("hashed", 1)])
def test_threads_measure_the_gradient_noise_before_leases(monkeypatch, kind, members):
    """It takes simulated time, which is not that of the leases, and changes no parameter."""
    monkeypatch.setattr(noise, "FEWEST_ROWS", 10)
    found = []
    for cost in (0.0, 1e9):
        monkeypatch.setattr(noise, "LARGEST_COST", cost)
        driver = Driver(kind, threads=members, members=members)
        driver.submit(0, 20)
        driver.submit(20, 40, lease=2)
        driver.host.run()
        first, last = [done for _, done in driver.host.posted]
        assert first.noise is None, "no time has passed before the first lease"
        assert last.seconds == pytest.approx(20 * ROW_S)
        found.append((driver.host.posted[-1][0], last.noise, driver.params.copy()))
    (without, unknown, params), (at, measured, same) = found
    assert unknown is None and measured[0] > 0 and len(measured) == noise.SUMS
    assert at == pytest.approx(
        without + cpu.MEASURING * members * driver.assignment.train.rows * ROW_S
    )
    np.testing.assert_array_equal(params, same)


@pytest.mark.parametrize(("kind", "members"), [("hashed", 1), ("dense", 2)])
def test_all_threads_evaluate_and_leave_the_model_as_it_is(kind, members):
    driver = Driver(kind, threads=4, members=members)
    before = driver.params.copy()
    driver.submit(0, 60, batch=15, task="test", learning_rate=0.0)
    driver.host.run()
    ((at, done),) = driver.host.posted
    assert (done.rows, len(done.metric_sums)) == (60, 3)
    assert at == pytest.approx(15 * EVALUATED_ROW_S)
    np.testing.assert_array_equal(driver.params, before)
