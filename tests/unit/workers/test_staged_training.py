"""Training of a GPU worker on data in the segment of a coordinator, cached and staged."""

import pytest
from numpy.testing import assert_allclose

from hogbatch.workers import feed, gathering
from tests.support.assignments import examples
from tests.support.gpu_engine_driver import ROWS, SPARSE
from tests.support.limited_devices import Unpinned
from tests.support.row_sets import trained

every_form = pytest.mark.parametrize("data", [{}, SPARSE], ids=["dense", "sparse"])
every_labels = pytest.mark.parametrize("several", [False, True], ids=["labels", "lists"])


@every_form
@every_labels
def test_staged_sets_train_like_cached_sets(data, several, monkeypatch, caplog):
    caplog.set_level("INFO")
    train = examples(ROWS, several=several, **data)
    cached = trained(train)
    assert "staging" not in caplog.text
    monkeypatch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
    assert_allclose(trained(train), cached, atol=1e-6)
    assert "gathered by the device" in caplog.text


@every_form
def test_a_worker_without_pinned_memory_gathers_on_the_host(data, monkeypatch, caplog):
    caplog.set_level("INFO")
    train = examples(ROWS, **data)
    cached = trained(train)
    monkeypatch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
    assert_allclose(trained(train, device=Unpinned()), cached, atol=1e-6)
    assert "the host gathers the rows of batches: gpu:host cannot pin the data" in caplog.text


def test_the_data_are_mapped_once_for_both_sets(monkeypatch):
    monkeypatch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
    built, build = [], gathering.DeviceGathering.__init__

    def count(self, device, rows, data, capacity):
        built.append(data)
        build(self, device, rows, data, capacity)

    monkeypatch.setattr(gathering.DeviceGathering, "__init__", count)
    trained(examples(ROWS), examples(50, seed=1))
    assert len(built) == 2 and built[0] is built[1]
