import math

import pytest

from benchmarks.common.search import BestSetting, TunedSettings, ahead, climb, search, tune
from benchmarks.peers.contract import Stopwatch, combine


class Fake:
    """A peer whose batch 64 needs the fewest seconds; its threads alter pace alone."""

    NAME = "fake"
    PACKAGE = "fake"
    PACE = ("threads",)

    def __init__(self):
        self.seen = []

    def grid(self, problem):
        return combine(batch=(64, 16), lr=(0.2,), threads=(1,))

    def close(self):
        pass

    def train(self, setting, watch):
        """Take 640 / batch seconds, or 10 if the rate is low; two threads are twice as fast."""
        self.seen.append((setting, watch))
        seconds = (640 / setting["batch"] if setting["lr"] > 0.1 else 30.0) / setting["threads"]
        if watch.target == -math.inf:
            return {"curve": [[0, 1.0], [1.0, 0.9]], "rows": 100 * setting["threads"]}
        if setting["batch"] == 128:
            return {"curve": [], "rows": 0}
        met = seconds <= watch.limit_s
        last = [seconds, 0.5] if met else [watch.limit_s, 0.9]
        return {"curve": [[0, 1.0], last], "rows": 100}


def searched(known=None, **axes):
    peer = Fake()
    best = search(peer, combine(**axes), known, peer.train, Stopwatch(0.5, 60.0))
    return peer, best


def test_of_settings_that_differ_in_pace_only_the_fastest_is_trained_to_the_end():
    peer, best = searched(batch=(16, 64, 32), lr=(0.1, 0.2), threads=(1, 2))
    whole = [setting for setting, watch in peer.seen if watch.target == 0.5]
    assert [setting["threads"] for setting in whole] == [2] * 6
    assert best.setting == {"batch": 64, "lr": 0.2, "threads": 2}
    assert best.seconds == 5.0


def test_nobody_gets_longer_than_the_best_so_far_which_is_the_rival():
    """The first setting fails."""
    peer, best = searched(batch=(128, 64, 16), lr=(0.2,), threads=(1,))
    assert [watch.limit_s for _, watch in peer.seen] == [60.0, 60.0, 10.0]
    assert [len(watch.rival) for _, watch in peer.seen] == [0, 0, 2]
    assert best.setting["batch"] == 64


def test_where_none_arrives_the_lowest_loss_wins():
    best = BestSetting(target=0.1)
    assert best.offer({"lr": 1}, [(0, 1.0), (5, 0.4)])
    assert best.offer({"lr": 2}, [(0, 1.0), (5, 0.3)])
    assert not best.offer({"lr": 3}, [(0, 1.0), (5, 0.35)])
    assert (best.setting, best.seconds) == ({"lr": 2}, None)
    assert best.offer({"lr": 4}, [(0, 1.0), (6, 0.1)]), "arriving counts more than a low loss"
    assert not best.offer({"lr": 5}, [(0, 1.0), (7, 0.01)])


def rungs_of(seconds, tried):
    """Rungs whose runs arrive after `seconds[i]`; None never arrives. Notes which were tried."""

    def rung(i):
        def attempt():
            tried.append(i)
            return [(0.0, 1.0), (9.0, 0.9) if seconds[i] is None else (seconds[i], 0.5)]

        return attempt

    return [rung(i) for i in range(len(seconds))]


@pytest.mark.parametrize(
    ("seconds", "order"), [([9, 8, 7, 5, 6], [2, 3, 4]), ([4, 5, 7, None, 1], [2, 3, 1, 0])]
)
def test_rates_are_tried_upward_while_that_is_better_or_else_downward(seconds, order):
    tried = []
    climb(rungs_of(seconds, tried), 2, target=0.5)
    assert tried == order


def test_the_known_setting_comes_first():
    known = {"batch": 16, "lr": 0.2, "threads": 1}
    peer, _ = searched(known, batch=(64, 16), lr=(0.1, 0.2), threads=(1,))
    assert peer.seen[0][0] == known


def test_of_two_that_did_not_arrive_the_lower_one_at_the_same_time_is_ahead_of_one_that_failed():
    assert ahead([(0, 1.0), (2, 0.6)], [(0, 1.0), (2, 0.7), (9, 0.51)], target=0.5)
    assert not ahead([(0, 1.0), (2, 0.8)], [(0, 1.0), (2, 0.7), (9, 0.51)], target=0.5)

    assert not ahead([], [(0, 1.0)], target=0.5)
    assert ahead([(0, 1.0)], [], target=0.5)


def test_the_setting_found_for_a_peer_is_stored(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.peers.peer", lambda name: peer)
    monkeypatch.setattr("benchmarks.common.search.PeerProcesses", lambda *given: peer)
    peer, settings = Fake(), TunedSettings(tmp_path / "tuned.json")
    watch = Stopwatch(0.5, 60.0)
    tune("fake", settings, "w8a", None, tmp_path, watch, fixed={"device": "cuda:0"})
    assert settings.setting("w8a", "fake") == {"batch": 64, "lr": 0.2, "threads": 1}
    assert all(setting["device"] == "cuda:0" for setting, _ in peer.seen)
