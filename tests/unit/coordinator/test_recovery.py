import math

import pytest

from hogbatch.coordinator.recovery import MOST_NAMED, MOST_PAUSE, MOST_ROLLBACKS, Recovery


@pytest.fixture
def recovery():
    made = Recovery(10.0)
    made.start(100.0)
    return made


def write(recovery, now, failed=False):
    recovery.begin_snapshot(True)
    recovery.end_snapshot("")
    recovery.end_checkpoint(failed, now)


def test_checkpoints_come_one_pause_after_another(recovery):
    assert not recovery.is_due(109.9)
    assert recovery.is_due(110.0)
    write(recovery, 112.0)
    assert not recovery.is_due(121.9)
    assert recovery.is_due(122.0)


def test_none_is_due_before_the_start_or_where_none_is_wanted():
    assert not Recovery(10.0).is_due(1e9)
    never = Recovery(math.inf)
    never.start(0.0)
    assert not never.is_due(1e9)


def test_none_is_due_while_one_is_made(recovery):
    recovery.begin_snapshot(True)
    assert not recovery.is_due(200.0)
    recovery.end_snapshot("")
    assert not recovery.is_due(200.0)  # it is being written
    recovery.end_checkpoint(False, 200.0)
    assert recovery.is_due(210.0)


def test_attempts_that_fail_come_later_and_later_until_one_succeeds(recovery):
    now, pauses = 110.0, []
    for _ in range(7):
        write(recovery, now, failed=True)
        pause = next(p for p in (10, 20, 40, 80, 160, 320) if recovery.is_due(now + p))
        pauses.append(pause)
        now += pause
    assert pauses == [20, 40, 80, 160, 160, 160, 160] and MOST_PAUSE == 16
    write(recovery, now)
    assert recovery.is_due(now + 10)


def test_a_model_that_is_not_finite_is_not_written(recovery):
    recovery.begin_snapshot(True)
    recovery.end_snapshot("layers.0.bias[1]")
    assert recovery.poisoned == "layers.0.bias[1]"
    assert recovery.is_due(110.0)


def test_the_learning_rate_is_halved_until_it_is_enough(recovery):
    assert recovery.rate_factor == 1.0
    goes_on = [recovery.roll_back() for _ in range(MOST_ROLLBACKS)]
    assert goes_on == [True, True, False]
    assert recovery.rate_factor == 0.125
    assert "3 times, the last time at layers.0.weight[2, 3]" in recovery.diverged(
        "layers.0.weight[2, 3]"
    )


def test_the_first_suspects_since_all_was_well_are_remembered(recovery):
    for lease in range(9):
        recovery.suspect({"lease": lease})
    assert [each["lease"] for each in recovery.suspects] == [0, 1, 2, 3, 4]
    recovery.begin_snapshot(False)
    recovery.end_snapshot("")
    assert recovery.suspects == []


def test_a_flood_of_skipped_rows_is_not_told_of_for_ever(recovery):
    told = [recovery.suspect({"lease": lease}) for lease in range(MOST_NAMED + 5)]
    assert sum(map(len, told)) == MOST_NAMED
    assert told[-1] == []
