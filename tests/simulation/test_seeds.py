"""Two hundred runs full of faults, in simulated time; scripts/simulate --seeds 10000 plays more."""

from collections import Counter

import pytest

from hogbatch.simulate.scenario import FAULTS, draw, play

SEEDS, PARTS = 200, 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_runs_full_of_faults_keep_all_promises(part):
    ends = Counter(play(draw(seed)).finish.status for seed in range(part, SEEDS, PARTS))
    assert ends["finished"] > SEEDS / PARTS / 2


def test_a_seed_gives_the_same_run_again():
    runs = [play(draw(11)) for _ in range(2)]
    assert runs[0].agenda.now == runs[1].agenda.now
    assert runs[0].messages == runs[1].messages


def test_every_fault_is_among_those_seeds():
    drawn = [draw(seed) for seed in range(SEEDS)]
    names = {fault.name for scenario in drawn for fault in scenario.faults}
    assert names == {*FAULTS, "interrupt"}
    assert any(scenario.conditions.bad_rows for scenario in drawn)
    assert any(scenario.conditions.network.loss for scenario in drawn)
