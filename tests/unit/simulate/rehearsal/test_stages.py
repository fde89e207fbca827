"""When the stages of a batch run."""

import pytest

from hogbatch.simulate.rehearsal.cpu import SHORTEST, StageGroup, next_end, next_pass, next_phase

LONG, SHORT = 4 * SHORTEST, SHORTEST / 3


def steps(seconds, following=next_pass):
    """All steps of a batch."""
    found = [following(seconds, 0)]
    while found[-1].stop < len(seconds):
        found.append(following(seconds, found[-1].stop))
    return found


def test_each_stage_runs_in_the_middle_of_its_time():
    expected = [StageGroup(1, 0.5 * LONG), StageGroup(2, 2.0 * LONG), StageGroup(3, 3.5 * LONG)]
    assert steps([LONG, 2 * LONG, LONG]) == [(stop, pytest.approx(at)) for stop, at in expected]


def test_short_stages_run_together_with_the_following_ones():
    found = steps([SHORT, SHORT, LONG, LONG])
    assert [step.stop for step in found] == [3, 4]
    assert found[0].at == pytest.approx(SHORT + LONG / 2)


def test_short_stages_at_the_end_run_together_with_the_one_before():
    found = steps([LONG, LONG, SHORT, SHORT])
    assert [step.stop for step in found] == [1, 4]
    assert found[1].at == pytest.approx(LONG + (LONG + 2 * SHORT) / 2)


def test_a_short_batch_runs_at_once():
    assert steps([SHORT / 4] * 8) == [(8, pytest.approx(SHORT))]


def test_a_team_reads_in_the_middle_of_its_first_phase_even_of_a_short_batch():
    found = steps([SHORT, SHORT / 4, SHORT / 4], next_phase)
    assert found == [(1, pytest.approx(SHORT / 2)), (3, pytest.approx(1.25 * SHORT))]
    long = steps([LONG, LONG, LONG], next_phase)
    assert long == [(n + 1, pytest.approx((n + 0.5) * LONG)) for n in range(3)]


def test_a_delayed_batch_reads_when_it_begins_and_writes_when_it_ends():
    assert next_end([LONG], 0, 4) == StageGroup(1, 0.0)
    assert next_end([LONG], 1, 4) == StageGroup(4, LONG)
