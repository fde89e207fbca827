from hogbatch.simulate.agenda import Agenda


def test_events_happen_in_the_order_of_their_times():
    agenda, seen = Agenda(), []
    agenda.after(2.0, lambda: seen.append(("late", agenda.now)))
    agenda.after(1.0, lambda: agenda.after(0.5, lambda: seen.append(("between", agenda.now))))
    while agenda.step():
        pass
    assert seen == [("between", 1.5), ("late", 2.0)]


def test_events_of_one_time_happen_in_the_order_they_were_entered():
    agenda, seen = Agenda(), []
    for number in range(10):
        agenda.at(1.0, lambda number=number: seen.append(number))
    while agenda.step():
        pass
    assert seen == list(range(10))


def test_time_never_goes_back():
    agenda, seen = Agenda(now=5.0), []
    agenda.at(1.0, lambda: seen.append(agenda.now))
    assert agenda.step()
    assert seen == [5.0]
    assert not agenda.step()
