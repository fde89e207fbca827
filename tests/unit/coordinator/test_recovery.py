import pytest

from hogbatch.coordinator.recovery import MAX_NAMED, MAX_PAUSE, Recovery
from hogbatch.coordinator.saved_state import PROGRESS, RollBacks
from hogbatch.events.event import RowsSkipped


@pytest.fixture
def recovery():
    made = Recovery(10.0)
    made.start(100.0)
    return made


def write(recovery, now, failed=False):
    recovery.begin_snapshot(True, 0)
    recovery.end_snapshot("")
    recovery.end_checkpoint(failed, now)


def test_checkpoints_come_one_pause_after_another(recovery):
    assert not recovery.is_due(109.9)
    assert recovery.is_due(110.0)
    write(recovery, 112.0)
    assert not recovery.is_due(121.9)
    assert recovery.is_due(122.0)


def test_attempts_that_fail_come_later_and_later_until_one_succeeds(recovery):
    now, pauses = 110.0, []
    for _ in range(7):
        write(recovery, now, failed=True)
        pause = next(p for p in (10, 20, 40, 80, 160, 320) if recovery.is_due(now + p))
        pauses.append(pause)
        now += pause
    assert pauses == [20, 40, 80, 160, 160, 160, 160] and MAX_PAUSE == 16
    write(recovery, now)
    assert recovery.is_due(now + 10)


def test_progress_takes_back_one_roll_back_and_its_halving_at_a_time():
    rollbacks = RollBacks()
    rollbacks.found_finite(1000)
    rollbacks.add(1100)
    rollbacks.add(1200)  # which discarded 100 rows
    assert not rollbacks.found_finite(1200 + 100 * PROGRESS)
    assert rollbacks.counted == 2
    assert rollbacks.found_finite(1201 + 100 * PROGRESS)
    assert (rollbacks.counted, rollbacks.rate_factor) == (1, 0.5)
    assert not rollbacks.found_finite(1300 + 100 * PROGRESS)  # not the next at once
    assert rollbacks.found_finite(1202 + 200 * PROGRESS)
    assert (rollbacks.counted, rollbacks.rate_factor) == (0, 1.0)
    assert not rollbacks.found_finite(10**9)
    assert rollbacks.total == 2


def skipped(row):
    return RowsSkipped(0.5, 0, "cpu-0", 32, 2, rows=[0, 64], skipped=1, row=row)


def test_the_first_suspects_since_the_last_good_snapshot_are_remembered(recovery):
    for lease in range(9):
        recovery.suspect(skipped(lease))
    assert [each.row for each in recovery.suspects] == [0, 1, 2, 3, 4]
    recovery.begin_snapshot(False, 0)
    recovery.end_snapshot("")
    assert recovery.suspects == []


def test_the_number_of_reported_leases_with_skipped_rows_is_limited(recovery):
    told = [recovery.suspect(skipped(lease)) for lease in range(MAX_NAMED + 5)]
    assert sum(map(len, told)) == MAX_NAMED
    assert told[-1] == []
