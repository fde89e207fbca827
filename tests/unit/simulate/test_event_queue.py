from hogbatch.simulate.event_queue import EventQueue


def test_actions_run_in_the_order_of_their_times():
    queue, seen = EventQueue(), []
    queue.after(2.0, lambda: seen.append(("late", queue.now)))
    queue.after(1.0, lambda: queue.after(0.5, lambda: seen.append(("between", queue.now))))
    while queue.step():
        pass
    assert seen == [("between", 1.5), ("late", 2.0)]


def test_actions_of_one_time_run_in_the_order_of_scheduling():
    queue, seen = EventQueue(), []
    for number in range(10):
        queue.at(1.0, lambda number=number: seen.append(number))
    while queue.step():
        pass
    assert seen == list(range(10))


def test_time_never_goes_back():
    queue, seen = EventQueue(now=5.0), []
    queue.at(1.0, lambda: seen.append(queue.now))
    assert queue.step()
    assert seen == [5.0]
    assert not queue.step()
