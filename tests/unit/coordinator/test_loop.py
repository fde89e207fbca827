import os
import threading
from contextlib import closing

import numpy as np
import pytest

from hogbatch.coordinator.loop import Loop, Surroundings
from hogbatch.coordinator.plan import Finish, Shuffle
from hogbatch.store.fence import Fences
from hogbatch.wire.loopback import Loopback

WITHIN_S = 20


class Mind:
    """A coordinator's state that answers every event from a script."""

    workers = ()

    def __init__(self, commands):
        self._commands = commands

    def begin(self, now):
        return self._commands

    def standing(self, now):
        return "standing"

    def tick(self, now):
        return []


class Door:
    """A handover at which nobody knocks."""

    def __init__(self):
        self._fd = os.eventfd(0)

    def fileno(self):
        return self._fd

    def close(self):
        os.close(self._fd)


@pytest.fixture
def door():
    with closing(Door()) as made:
        yield made


def surroundings(door, shuffle):
    return Surroundings(
        end=Loopback(),
        handover=door,
        fences=Fences(np.zeros((4, 8), np.int64)),
        children=None,
        shuffle=shuffle,
        record=None,
        report=None,
        keep=None,
    )


def test_a_run_that_ends_while_an_order_is_written_waits_for_it(door):
    written, ending = [], threading.Timer(0.05, lambda: None)

    def shuffle(epoch):
        ending.join(WITHIN_S)
        written.append(epoch)

    ending.start()
    loop = Loop(Mind([Shuffle(0), Finish("finished", "")]), surroundings(door, shuffle))
    assert loop.run() == (Finish("finished", ""), "standing")
    assert written == [0]
