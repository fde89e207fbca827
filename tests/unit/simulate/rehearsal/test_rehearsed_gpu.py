"""The simulated times at which a GPU worker trains, merges, fetches and reports."""

from functools import partial
from random import Random

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.kernels.contract import LOSS
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.simulate.hardware.gpu_cost import MergeTimes
from hogbatch.simulate.rehearsal.cores import Noise
from hogbatch.simulate.rehearsal.gpu import RehearsedGpu
from hogbatch.simulate.rehearsal.replica import RehearsedTrainer
from hogbatch.wire.messages import Lease
from hogbatch.workers.replica import Replica
from hogbatch.workers.trainer import Trainer
from tests.support.assignments import assignment, examples
from tests.support.simulated_host import SimulatedHost
from tests.unit.simulate.rehearsal.conftest import PICTURES

ROWS, BATCH = 64, 8
BATCH_S, BLOCKING_S, MERGE_S, PULL_S, EVALUATE_S = 1.0, 0.25, 0.5, 0.125, 0.0625
ONE_ROW_S = BATCH_S / BATCH


class FixedCost:
    """Times that float64 adds exactly."""

    densify = False

    def __init__(self, merge_s=MERGE_S, pull_s=PULL_S):
        self.merge_s, self.pull_s = merge_s, pull_s

    def train_seconds(self, rows):
        return rows * ONE_ROW_S

    def evaluate_seconds(self, rows):
        return rows * EVALUATE_S

    def profile(self, rows):
        return ((BATCH, BATCH_S),)

    def merge(self, touched):
        return MergeTimes(BLOCKING_S, self.merge_s, self.pull_s)


class Rig:
    """One engine, and the times of all calls of its replica in `log`."""

    def __init__(self, monkeypatch, given, label="gpu:0", cost=None, **settings):
        self.given, self.host, self.log = given, SimulatedHost(given), []
        for name in ("begin", "_take", "merge", "fetch", "reset"):
            monkeypatch.setattr(Replica, name, self._logged(name))
        self.engine = RehearsedGpu(
            label,
            cost or FixedCost(),
            lambda welcome: given,
            Noise(Random(0), 0.0),
            **settings,
        )
        self.engine.prepare(given.welcome, self.host)
        self.log.clear()

    def _logged(self, name):
        original = getattr(Replica, name)
        original = getattr(original, "original", original)

        def call(replica, *arguments):
            self.log.append((self.host.now, name))
            return original(replica, *arguments)

        call.original = original
        return call

    def at(self, time, action):
        self.host.queue.at(time, action)

    def submit(self, time, *works):
        for work in works:
            self.at(time, partial(self.engine.submit, work))

    @property
    def times(self):
        """The times of the calls, by name."""
        return {name: [t for t, called in self.log if called == name] for _, name in self.log}

    @property
    def done(self):
        return [message for _, message in self.host.posted]


def lease(number=0, start=0, stop=32, **fields):
    """A lease to train on."""
    known = {"task": "train", "epoch": 0, "batch_size": BATCH, "learning_rate": 0.1, "fence": 0}
    return Lease(**{"number": number, "start": start, "stop": stop, **known, **fields})


def dense(**fields):
    return assignment(
        examples(ROWS),
        examples(20, seed=1),
        **{"merge_every": 2, "staleness_damping": "off", **fields},
    )


def test_the_change_of_an_interval_is_merged_while_the_next_one_is_trained(monkeypatch):
    rig = Rig(monkeypatch, dense())
    rig.submit(1.0, lease())  # two intervals of two batches
    rig.host.run()
    # Pulled at 1, trained from 1.125 to 3.125, taken until 3.375; then the second interval begins.
    assert rig.log == [
        (1.0, "begin"),
        (3.125, "_take"),
        (3.875, "merge"),
        (3.875, "fetch"),
        (5.375, "_take"),
        (6.125, "merge"),
        (6.125, "fetch"),
    ]
    ((time, done),) = rig.host.posted
    assert time == 6.125
    assert (done.rows, done.updates, done.staleness, done.refused) == (32, 2, 0, 0)
    assert done.seconds == 5.125
    assert done.merge_seconds == 2 * BLOCKING_S
    assert done.transfer_seconds == 2 * MERGE_S
    assert done.transferred == (1 + 2 * 2) * rig.given.model.params.nbytes  # first, a pull
    assert rig.given.model.merges[0] == 2


PIPELINE = [2.125, 4.375, 6.625, 8.875]  # takes without a pull between two leases
SECOND = lease(1, 32, 64)


@pytest.mark.parametrize(
    ("rig", "leases", "begins", "takes", "reports"),
    [
        # Two batches after the pull; two more and the first take.
        ({"cost": FixedCost(pull_s=3.0)}, [(1.0, lease())], [1.0], [6.0, 8.25], [9.0]),
        # The second interval is trained until 4.375, but the first merge ends at 6.375.
        ({"cost": FixedCost(merge_s=4.0)}, [(0.0, lease())], [0.0], [2.125, 6.375], [10.625]),
        ({}, [(0.0, lease()), (0.0, SECOND)], [0.0], PIPELINE, [5.125, 9.625]),
        # The thread runs ahead of the device: it looks for a lease when both intervals are queued.
        (
            {},
            [(0.0, lease()), (3.0, SECOND)],
            [0.0, 5.125],
            [2.125, 4.375, 7.25, 9.5],
            [5.125, 10.25],
        ),
        ({"label": "gpu:host"}, [(0.0, lease()), (3.0, SECOND)], [0.0], PIPELINE, [5.125, 9.625]),
        # Intervals of 16 and of 4 rows.
        ({}, [(0.0, lease(0, 0, 20))], [0.0], [2.125, 2.375 + MERGE_S], [3.625]),
        # Blocking may take a tenth of the time: three batches of 1 s.
        ({"merge_every": 0}, [(0.0, lease(0, 0, 24))], [0.0], [3.125], [3.875]),
    ],
    ids=["pull", "slow merge", "waiting lease", "late lease", "host", "incomplete", "interval"],
)
def test_times(monkeypatch, rig, leases, begins, takes, reports):
    given = dense(merge_every=rig.pop("merge_every", 2))
    made = Rig(monkeypatch, given, **rig)
    for at, work in leases:
        made.submit(at, work)
    made.host.run()
    assert (made.times["begin"], made.times["_take"]) == (begins, takes)
    assert [at for at, _ in made.host.posted] == reports
    assert sum(done.rows for done in made.done) == sum(w.stop - w.start for _, w in leases)


def test_on_a_shared_core_the_exchange_delays_the_next_interval(monkeypatch):
    rig = Rig(monkeypatch, dense(), label="gpu:host", shares_core=True)
    rig.submit(0.0, lease(0, 0, 32))
    rig.submit(20.0, lease(1, 32, 48))  # nothing is exchanged while it is trained
    rig.host.run()
    first = PULL_S + 2 * BATCH_S
    exchange = MERGE_S
    second = first + BLOCKING_S + 2 * BATCH_S + exchange
    assert rig.times["_take"] == [first, second, 20.0 + first]
    assert rig.times["merge"][0] == first + BLOCKING_S + 2 * MERGE_S
    assert rig.times["fetch"][0] == rig.times["merge"][0]
    assert rig.host.posted[0][0] == second + BLOCKING_S + exchange  # nothing else is trained


def test_evaluation_waits_for_the_merge(monkeypatch):
    rig = Rig(monkeypatch, dense())
    rig.submit(0.0, lease(0, 0, 32), lease(1, 0, 20, task="test", batch_size=6))
    rig.host.run()
    assert [time for time, _ in rig.host.posted] == [5.125, 5.125 + PULL_S + 20 * EVALUATE_S]
    done = rig.done[1]
    assert (done.rows, done.updates) == (20, 0)
    assert done.metric_sums[0] > 0 and done.loss > 0
    assert done.seconds == PULL_S + 20 * EVALUATE_S
    assert done.transfer_seconds == PULL_S
    assert done.transferred == rig.given.model.params.nbytes


@pytest.mark.parametrize(("damping", "weight"), [("off", 1.0), ("root", 0.5)])
def test_staleness_is_counted_when_the_merge_begins(monkeypatch, damping, weight):
    rig = Rig(monkeypatch, dense(staleness_damping=damping))
    model, weights = rig.given.model, []
    merge = Replica.merge
    monkeypatch.setattr(Replica, "merge", lambda r, w: (weights.append(w), merge(r, w)))

    def others(count):
        model.steps[0] += count

    rig.at(1.0, partial(others, 3))  # after the pull, before the take
    rig.at(2.4, partial(others, 5))  # after the first merge began, before it ended
    rig.at(3.0, partial(others, 2))  # after the merge at 2.875
    rig.submit(0.0, lease())
    rig.host.run()
    # The second interval started from parameters that were pulled at 0, and rejoined at 4.375.
    assert rig.done[0].staleness == (3 + 10) / 2
    assert weights[0] == weight


def test_a_change_that_is_not_finite_is_refused(monkeypatch):
    """The next interval started from the same replica, so its rows are skipped as well."""
    train, calls = RehearsedTrainer._train, []

    def broken(trainer, rows, batch, rate):
        train(trainer, rows, batch, rate)
        calls.append(rows)
        if len(calls) == 1:
            trainer.replica.params[0] = np.nan

    monkeypatch.setattr(RehearsedTrainer, "_train", broken)
    rig = Rig(monkeypatch, dense())
    rig.submit(0.0, lease(0, 0, 64))
    rig.host.run()
    (done,) = rig.done
    assert (done.rows, done.refused, done.skipped, done.updates) == (64, 1, 32, 2)
    assert np.isfinite(rig.given.model.params).all()
    assert len(calls) == 3  # the skipped interval is not computed
    # Refused at 2.375; the second interval ends at 4.375.
    assert rig.times["reset"] == [4.375]
    assert rig.times["begin"] == [0.0, 4.375]


def test_a_roll_back_resets_the_replica(monkeypatch):
    rig = Rig(monkeypatch, dense(optimizer="momentum"))
    rig.submit(0.0, lease(0, 0, 32), lease(1, 32, 64, rollbacks=1))
    rig.host.run()
    assert rig.times["reset"] == [5.125]
    assert rig.times["begin"] == [0.0, 5.125]
    assert [done.rows for done in rig.done] == [32, 32]


@pytest.mark.parametrize(
    ("optimizer", "data", "below"),
    [
        ("adam", {}, {}),
        ("adagrad", {"sparse": True, "features": 200}, {}),
        ("adam", {}, {"backbone": PICTURES}),
    ],
    ids=["all parameters", "touched rows", "layers below dense ones"],
)
def test_one_worker_trains_as_a_real_one_on_one_interval(monkeypatch, optimizer, data, below):
    """Without other workers, the sum of all changes is what plain training gives."""
    settings = {"optimizer": optimizer, "merge_every": 3, **below}
    if data:
        data["stored"] = 0.005
    rig = Rig(monkeypatch, assignment(examples(ROWS, **data), **settings))
    rig.submit(0.0, *(lease(number, 0, 64, epoch=number) for number in range(2)))
    rig.host.run()
    plain = Trainer(HostDevice(), assignment(examples(ROWS, **data), **settings))
    plain.replica.exchange_all()
    for epoch in range(2):
        plain.follow(epoch)
        plain.train(0, 64, BATCH, 0.1)
    assert_allclose(rig.given.model.params, plain.replica.params, atol=1e-5)
    assert_allclose(sum(done.loss for done in rig.done), plain.replica.totals[LOSS], rtol=1e-4)
