from hypothesis import given, strategies as st

from hogbatch.run.launch.restarts import MAX_PAUSE_S, MAX_RESTARTS, Restarts


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


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=60))
def test_the_rule_holds_for_any_sequence_of_deaths(lives):
    """Each life lasts some seconds and ends with or without a lease finished in it."""
    restarts, now, idle = Restarts(), 0.0, 0
    for seconds, worked in lives:
        now += seconds
        restarts.died(now, worked)
        idle = 0 if worked else idle + 1
        if restarts.due_at is None:
            assert not worked and restarts.times == MAX_RESTARTS
            assert MAX_RESTARTS <= idle <= MAX_RESTARTS + 1
            return
        pause = restarts.due_at - now
        assert (pause <= 0) == worked and pause <= MAX_PAUSE_S
        now = restarts.due_at
        assert restarts.is_due(now)
        restarts.start()
        assert 1 <= restarts.times <= MAX_RESTARTS
