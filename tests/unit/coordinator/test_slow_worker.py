"""One worker a hundred times slower than the others: it helps a little and delays no epoch."""

from itertools import pairwise
from random import Random

import pytest

from hogbatch.policy.base import PolicySettings
from hogbatch.policy.paper_adaptive import PaperAdaptive
from tests.support.coordinator_stage import works

ROWS, EPOCHS, LEASE_S = 50_000, 6, 0.02
FAST, SLOW = 1e-5, 1e-3  # seconds per row
ALONE_S = ROWS * FAST  # an epoch of one fast worker


def run(play, seconds_per_row, until=lambda: False):
    """Run workers at their own speeds; return the times at which the epochs ended."""
    done_at, ends, epoch = {}, [], play.state.epochs.number
    while play.finish is None and not until():
        play.shuffle()
        for key, held in play.work.items():
            if held and key not in done_at:
                done_at[key] = play.now + (held[0].stop - held[0].start) * seconds_per_row[key]
        key = min(done_at, key=done_at.get)
        work, play.now = play.work[key][0], done_at.pop(key)
        play.done(key, seconds=(work.stop - work.start) * seconds_per_row[key])
        if play.state.epochs.number > epoch:
            epoch = play.state.epochs.number
            ends.append(play.now)
    return ends


@pytest.mark.parametrize("fast", [1, 3])
def test_a_worker_a_hundred_times_slower_gets_small_batches_and_holds_no_epoch(stage, fast):
    policy = PaperAdaptive(PolicySettings())
    play = stage(policy=policy, train_rows=ROWS, epochs=EPOCHS, cpu=(1, 64), lease_seconds=LEASE_S)
    speed = {f"fast{n}": FAST for n in range(fast)} | {"slow": SLOW}
    play.attach(*speed)
    ends = run(play, speed)
    slow = play.state.workers["slow"]
    assert slow.batch_trace.points[-1][1] == slow.limits[0] == 1
    assert 0 < slow.rows < 0.02 * EPOCHS * ROWS
    # Its first leases are handed out before anyone knows how slow it is.
    for begun, ended in pairwise(ends[1:]):
        assert ended - begun < 1.1 * ALONE_S / fast + 0.2 * LEASE_S


def test_a_slow_worker_sits_the_end_of_an_epoch_out_rather_than_be_waited_for(stage):
    play = stage(train_rows=ROWS, epochs=EPOCHS, cpu=(64, 64), lease_seconds=LEASE_S)
    speed = {f"fast{n}": FAST for n in range(3)} | {"slow": SLOW}  # whose batch takes 64 ms
    play.attach(*speed)
    ends = run(play, speed)
    longest = max(ended - begun for begun, ended in pairwise(ends[1:]))
    assert longest < 1.25 * ALONE_S / 3  # a lease may wait behind the one it has


def test_a_worker_whose_first_leases_were_slow_is_measured_again(stage):
    play = stage(train_rows=ROWS, epochs=200, cpu=(64, 64), lease_seconds=LEASE_S)
    seconds_per_row = {"fast": FAST, "slow": 1e-2}  # a batch takes longer than an epoch of "fast"
    play.attach(*seconds_per_row)
    run(play, seconds_per_row, until=lambda: play.state.epochs.number == 2)
    seconds_per_row["slow"] = 2 * FAST
    slow = play.state.workers["slow"]
    run(play, seconds_per_row, until=lambda: slow.rows > 10 * ROWS)
    assert play.state.epochs.number < 100


def test_trials_of_a_slow_worker_cost_little(stage):
    play = stage(train_rows=ROWS, epochs=100, cpu=(64, 64), lease_seconds=LEASE_S)
    seconds_per_row = {"fast": FAST, "slow": 1e-2}
    play.attach(*seconds_per_row)
    ends = run(play, seconds_per_row)
    trials = sum(key == "slow" for key, _ in works(play.said))
    assert 2 < trials < 8
    assert ends[-1] - ends[0] < 1.1 * 99 * ALONE_S


class Unsteady(dict):
    """Seconds per row of workers that are equally fast on average."""

    rng = Random(0)

    def __getitem__(self, key):
        return FAST * self.rng.uniform(0.8, 1.2)


def test_rows_that_each_of_two_workers_leaves_to_the_other_are_handed_out_without_a_tick(stage):
    play = stage(train_rows=ROWS, epochs=50, cpu=(256, 256), lease_seconds=LEASE_S)
    play.attach("one", "two")
    run(play, Unsteady())  # fails if no worker has a lease
    assert play.finish is not None
