from random import Random

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.worker import Link


def test_actions_run_in_the_order_of_their_times_and_then_of_scheduling():
    queue, seen = EventQueue(now=0.5), []
    queue.after(2.0, lambda: seen.append(("late", queue.now)))
    queue.after(1.0, lambda: queue.after(0.5, lambda: seen.append(("between", queue.now))))
    queue.at(0.0, lambda: seen.append(("past", queue.now)))
    for number in range(3):
        queue.at(2.0, lambda number=number: seen.append((number, queue.now)))
    while queue.step():
        pass
    assert seen == [("past", 0.5), *((n, 2.0) for n in range(3)), ("between", 2.0), ("late", 2.5)]
    assert not queue.step()


def test_messages_arrive_in_order():
    link = Link(Random(0), mean_delay=0.1)
    came = [link.arrival(now / 1000) for now in range(1000)]
    assert came == sorted(came)
    assert all(time >= now / 1000 for now, time in enumerate(came))
