from random import Random

from hogbatch.simulate.link_quality import Link, LinkQuality


def arrivals(network, times=1000, certain=False):
    link = Link(network, Random(0))
    return [link.arrivals(now / 1000, certain) for now in range(times)]


def test_a_good_network_delivers_each_message_once_and_in_order():
    came = arrivals(LinkQuality(delay=0.1))
    assert all(len(times) == 1 for times in came)
    assert came == sorted(came)
    assert all(times[0] >= now / 1000 for now, times in enumerate(came))


def test_a_bad_network_loses_duplicates_and_reorders():
    came = arrivals(LinkQuality(delay=0.1, loss=0.1, duplication=0.2, ordered=False))
    assert {len(times) for times in came} == {0, 1, 2}
    flat = [time for times in came for time in times]
    assert flat != sorted(flat)


def test_a_certain_message_is_not_lost():
    assert all(arrivals(LinkQuality(loss=0.9), certain=True))
