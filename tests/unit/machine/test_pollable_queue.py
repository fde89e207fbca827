import select

import pytest

from hogbatch.machine.pollable_queue import PollableQueue


@pytest.fixture
def items():
    return PollableQueue[int]()


def is_readable(items):
    return bool(select.select([items.fd], [], [], 0)[0])


def test_it_is_readable_until_its_items_are_taken(items):
    assert not is_readable(items) and list(items.taken()) == []
    items.put(1)
    items.put(2)
    assert is_readable(items)
    assert list(items.taken()) == [1, 2]
    assert not is_readable(items)


def test_an_item_that_is_put_while_others_are_taken_is_taken_too(items):
    items.put(1)
    taken = items.taken()
    assert next(taken) == 1
    items.put(2)
    assert list(taken) == [2]


def test_a_thread_may_put_an_item_after_the_queue_is_closed(items):
    items.close()
    items.put(1)
