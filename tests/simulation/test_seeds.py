"""Two hundred simulated runs with faults; `scripts/simulate --seeds 10000` runs more."""

from collections import Counter

import pytest

from tests.simulation import scenario
from tests.simulation.scenario import FAULTS, ScenarioFailed, draw_scenario, run_scenario

SEEDS, PARTS = 200, 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_runs_full_of_faults_keep_all_promises(part):
    ends = Counter(
        run_scenario(draw_scenario(seed)).finish.status for seed in range(part, SEEDS, PARTS)
    )
    assert ends["finished"] > SEEDS / PARTS / 2


def test_a_seed_gives_the_same_run_again():
    runs = [run_scenario(draw_scenario(11)) for _ in range(2)]
    assert runs[0].queue.now == runs[1].queue.now
    assert runs[0].messages == runs[1].messages


def test_every_fault_occurs_in_those_seeds():
    drawn = [draw_scenario(seed) for seed in range(SEEDS)]
    names = {fault.name for scenario in drawn for fault in scenario.faults}
    assert names == {*FAULTS, "interrupt"}
    assert any(scenario.conditions.bad_rows for scenario in drawn)
    assert any(scenario.conditions.loss for scenario in drawn)


def test_a_seed_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(scenario, "HORIZON_S", 0.01)
    with pytest.raises(ScenarioFailed, match=r"seed 5: .* did not end.*scripts/simulate --seed 5"):
        run_scenario(draw_scenario(5))
