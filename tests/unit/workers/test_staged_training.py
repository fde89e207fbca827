"""Training of a GPU worker on data in the segment of a coordinator, cached and staged."""

import pytest
from numpy.testing import assert_allclose

from hogbatch.workers import feed, gathering
from tests.support.assignments import examples
from tests.support.gpu_engine_driver import ROWS, SPARSE
from tests.support.limited_devices import Unpinned
from tests.support.row_sets import trained


@pytest.mark.parametrize(
    ("data", "device", "message"),
    [
        ({}, None, "gathered by the device"),
        (SPARSE | {"several": True}, None, "gathered by the device"),
        (
            SPARSE,
            Unpinned(),
            "the host gathers the rows of batches: gpu:host cannot pin the data",
        ),
    ],
    ids=["dense", "sparse, label lists", "unpinned"],
)
def test_staged_sets_train_like_cached_sets(data, device, message, monkeypatch, caplog):
    caplog.set_level("INFO")
    train = examples(ROWS, **data)
    cached = trained(train)
    assert "staging" not in caplog.text
    monkeypatch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
    assert_allclose(trained(train, device=device), cached, atol=1e-6)
    assert message in caplog.text


def test_the_data_are_mapped_once_for_both_sets(monkeypatch):
    monkeypatch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
    built, build = [], gathering.DeviceGathering.__init__

    def count(self, device, rows, data, capacity):
        built.append(data)
        build(self, device, rows, data, capacity)

    monkeypatch.setattr(gathering.DeviceGathering, "__init__", count)
    trained(examples(ROWS), examples(50, seed=1))
    assert len(built) == 2 and built[0] is built[1]
