from hypothesis import given, strategies as st

from hogbatch.run.launch.restarts import (
    MAX_PAUSE_S,
    MAX_RECENT,
    MAX_RESTARTS,
    RECENT_S,
    Restarts,
)


def pauses(restarts, deaths):
    """The pauses before each restart of a worker that never finishes a lease."""
    found, now = [], 0.0
    for _ in range(deaths):
        restarts.died(now, worked=False)
        if restarts.due_at is None:
            break
        found.append(restarts.due_at - now)
        now = restarts.due_at
        restarts.start()
    return found


def test_a_worker_that_never_works_is_restarted_three_times_after_growing_pauses():
    restarts = Restarts()
    assert pauses(restarts, 9) == [1, 2, 4]
    assert restarts.counted == (3, 3)
    assert str(restarts) == "4 deaths in 7 s without a finished lease"
    assert pauses(Restarts(maximum=8), 9) == [1, 2, 4, 8, 16, 32, 32, 32]


def test_a_worker_that_has_worked_is_restarted_immediately_and_its_count_starts_again():
    restarts = Restarts()
    assert len(pauses(restarts, 2)) == 2
    restarts.died(100.0, worked=True)
    assert restarts.is_due(100.0)
    restarts.start()
    assert restarts.times == 1 and not restarts.is_due(999.0)
    restarts.died(110.0, worked=False)
    assert not restarts.is_due(110.99) and restarts.is_due(111.0)
    assert str(restarts) == "1 death in 0 s without a finished lease"


def test_a_worker_that_dies_again_and_again_is_not_restarted_without_end():
    restarts = Restarts()
    for count in range(1, MAX_RECENT + 1):
        restarts.died(2.0 * count, worked=True)
        assert restarts.is_due(2.0 * count)
        restarts.start()
        assert restarts.counted == (count, MAX_RECENT)
    restarts.died(62.0, worked=True)
    assert restarts.due_at is None
    assert str(restarts) == "31 deaths in 60 s"


def test_a_worker_that_dies_rarely_is_restarted_any_number_of_times():
    restarts = Restarts()
    for count in range(10 * MAX_RECENT):
        now = 1.01 * count * RECENT_S / MAX_RECENT
        restarts.died(now, worked=True)
        assert restarts.is_due(now)
        restarts.start()


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=60))
def test_the_rule_holds_for_any_sequence_of_deaths(lives):
    """Each life lasts some seconds and ends with or without a lease finished in it."""
    restarts, now, idle, deaths = Restarts(), 0.0, 0, []
    for seconds, worked in lives:
        now += seconds
        deaths.append(now)
        restarts.died(now, worked)
        idle = 0 if worked else idle + 1
        often = sum(death >= now - RECENT_S for death in deaths) > MAX_RECENT
        if restarts.due_at is None:
            assert often or (restarts.times == MAX_RESTARTS <= idle <= MAX_RESTARTS + 1)
            return
        pause = restarts.due_at - now
        assert not often and (pause <= 0) == worked and pause <= MAX_PAUSE_S
        now = restarts.due_at
        assert restarts.is_due(now)
        restarts.start()
        assert 1 <= restarts.times <= MAX_RESTARTS
