"""Measurements of a device: batch sizes, stopping, and caching."""

import json
import logging
import math
import os
import time

import pytest
from numpy.testing import assert_array_equal

from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.workers.profile import MAX_AGE_S, profile
from hogbatch.workers.trainer import Trainer
from tests.support.assignments import FEATURES, assignment, examples
from tests.support.limited_devices import OutOfHostMemory

ROWS = 1000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache directory of profiles, initially empty."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    return tmp_path / "profiles"


class Start:
    """A worker's start with simulated `seconds`, a function of rows and densify."""

    def __init__(self, rows=ROWS, *, seconds=None, sparse=False, device=None, **settings):
        self.given = assignment(examples(rows, sparse=sparse), **settings)
        self.trainer = Trainer(device or HostDevice(), self.given)
        self.densify, self.measured = None, []
        if seconds is not None:
            self._seconds, self.trainer.seconds = seconds, self.seconds
        self._compute, self.trainer.compute = self.trainer.compute, self.compute

    def profile(self):
        return profile(self.trainer, self.given)

    def seconds(self, batch):
        self.measured.append((batch, self.densify))
        return self._seconds(batch, self.densify)

    def compute(self, *, densify):
        self.densify = densify
        self._compute(densify=densify)


def quick(batch, densify):
    return 1e-3


def sizes(profile):
    return [rows for rows, _ in profile]


def test_a_device_without_memory_cannot_be_measured():
    def seconds(rows, densify):
        raise OutOfHostMemory("no room")

    with pytest.raises(OutOfHostMemory, match="no room"):
        Start(seconds=seconds).profile()


def test_a_second_start_loads_the_measurements(cache):
    first, second = (Start(seconds=quick) for _ in range(2))
    measured = first.profile()
    (kept,) = cache.iterdir()
    assert json.loads(kept.read_bytes()) == {
        "densify": False,
        "profile": [list(each) for each in measured.profile],
    }
    assert second.profile() == measured
    assert first.measured and not second.measured


@pytest.mark.parametrize(
    "other",
    [
        {"hidden": (9,)},
        {"optimizer": "adam"},
        {"rows": ROWS + 1},
        {"sparse": True},
        {"device": HostDevice(), "model": "another host"},
        {"driver": "580.65"},
        {"backbone": f"1x{FEATURES}x1,gru:8,last"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_network_set_device_or_driver_is_measured_again(monkeypatch, other):
    below = {"backbone": f"1x{FEATURES}x1,lstm:8,last"} if "backbone" in other else {}
    Start(seconds=quick, **below).profile()
    driver, model = other.pop("driver", None), other.pop("model", "host")
    monkeypatch.setattr("hogbatch.workers.profile.nvidia_driver", lambda: driver)
    again = Start(seconds=quick, **other)
    again.trainer.device.model = model
    again.profile()
    assert again.measured


VALID = {"densify": False, "profile": [[16, 0.001]]}
INVALID = [
    *({"profile": [[16, bad]]} for bad in (None, -1, 0, math.nan, math.inf)),
    *({"profile": bad} for bad in ([], [[16]], [16, 0.1], [[0, 1]], [["16", 1]])),
    {"more": 1},
]


def test_a_valid_profile_is_used_and_a_corrupt_one_is_measured_again(cache):
    measured = Start(seconds=quick).profile()
    (kept,) = cache.iterdir()
    written = kept.read_bytes()
    invalid = [json.dumps(VALID | change).encode() for change in INVALID]
    for content in (b"", b"{", b"\xff\xfe", b"null", b"[]", *invalid):
        kept.write_bytes(content)
        again = Start(seconds=quick)
        assert again.profile() == measured and again.measured, content
        assert kept.read_bytes() == written
    kept.write_text(json.dumps(VALID))
    again = Start(seconds=quick)
    assert again.profile().profile == ((16, 0.001),) and not again.measured


@pytest.mark.parametrize(
    ("age", "again"), [(MAX_AGE_S - 60, False), (MAX_AGE_S + 60, True), (-60, True)]
)
def test_measurements_are_valid_for_a_month(cache, age, again):
    Start(seconds=quick).profile()
    (kept,) = cache.iterdir()
    os.utime(kept, (time.time() - age,) * 2)
    later = Start(seconds=quick)
    later.profile()
    assert bool(later.measured) == again


def test_a_profile_that_cannot_be_cached_is_not_an_error(cache, caplog):
    cache.write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert Start(seconds=quick).profile().profile
    assert "cannot be cached" in caplog.text


@pytest.mark.parametrize(("out", "densify"), [(0.5, True), (1.0, False), (2.0, False)])
def test_rows_are_densified_where_that_is_faster(out, densify):
    def seconds(rows, densify):
        return out if densify else 1.0

    for start in (Start(sparse=True, seconds=seconds) for _ in range(2)):  # measured, recalled
        assert start.profile().densify == densify
        assert start.densify == densify
    assert Start(sparse=True, seconds=seconds).profile().profile == ((16, min(out, 1.0)),)


@pytest.mark.parametrize(
    "settings",
    [
        {"sparse": False},
        {"sparse": True, "optimizer": "adam"},
        {"sparse": True, "optimizer": "momentum"},
        {"sparse": True, "l2": 1e-4},
    ],
    ids=str,
)
def test_rows_are_not_densified_where_that_changes_results(settings):
    if "l2" in settings:  # also if that was found for a run which allows it
        assert Start(seconds=lambda rows, densify: 0.5 - 0.4 * densify, sparse=True).profile()
    start = Start(seconds=lambda rows, densify: 0.1 if densify else 1.0, **settings)
    assert not start.profile().densify and not start.densify
    assert not any(densify for _, densify in start.measured)


@pytest.mark.parametrize(
    ("sparse", "optimizer"),
    [(False, "sgd"), (True, "momentum"), (True, "adagrad"), (False, "adam")],
)
def test_measuring_leaves_no_traces(sparse, optimizer):
    start = Start(64, sparse=sparse, optimizer=optimizer)
    start.given.model.first[:] = 3
    before = start.given.model.params.copy()
    start.profile()
    replica = start.trainer.replica
    assert_array_equal(start.given.model.params, before)
    assert_array_equal(replica.params, before)
    assert (replica.slots[0] == 3).all() and not replica.slots[1].any()
    assert replica.steps == 0 and not replica.totals.any()
