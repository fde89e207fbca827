"""The model of all servers, as it is copied to the process that trains."""

from types import SimpleNamespace

import numpy as np
import pytest

from hogbatch.cluster.platform import ModelOfServers

NAMES = ("params", "first", "second")


@pytest.fixture
def model():
    return SimpleNamespace(**{name: np.zeros(3) for name in NAMES})


def channel(gave_model, arrays):
    return SimpleNamespace(gave_model=gave_model, read_model=lambda: arrays)


def test_the_model_is_copied_from_a_server(model):
    arrays = {name: np.full(3, number) for number, name in enumerate(NAMES)}
    ModelOfServers(model, channel(True, arrays)).pull()
    assert [getattr(model, name)[0] for name in NAMES] == [0, 1, 2]


def test_the_initial_model_is_that_of_this_process(model):
    ModelOfServers(model, channel(False, None)).pull()
    assert not model.params.any()


def test_an_old_copy_is_not_taken_for_the_model_of_servers_that_are_gone(model):
    with pytest.raises(ConnectionError, match="no server that has the model can be reached"):
        ModelOfServers(model, channel(True, None)).pull()
