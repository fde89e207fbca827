import argparse
import json
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest

import benchmarks.planes.__main__ as planes
from benchmarks.common import arguments
from benchmarks.planes.candidates import PLANES
from benchmarks.planes.contract import (
    FLOATS_PER_MB,
    NotMoved,
    change,
    move_timed,
    move_whole,
    places,
)
from benchmarks.planes.pair import pair

MOVES = {
    "shared": {"worker": "in place"},
    "replica": {"worker": "replica"},
    "socket": {"buffer_mb": 1},
    "pickle": {"out_of_band": False, "piece_mb": None, "malloc": "keep"},
    "pickle, out of band": {"out_of_band": True, "piece_mb": None},
    "pickle, in pieces": {"out_of_band": True, "piece_mb": 0.3},
    "grpc": {"piece_mb": None, "options": "default", "malloc": "keep in huge pages"},
    "grpc, in pieces": {"piece_mb": 0.3, "options": "large reads"},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MOVES)
def test_a_plane_moves_every_parameter_there_and_back(case):
    plane = case.partition(",")[0]
    if plane == "grpc" and not find_spec("grpc"):
        pytest.skip("grpcio is not installed")
    with pair(plane, FLOATS_PER_MB, MOVES[case]) as move:
        seconds = move(2)
    assert len(seconds) == 2
    assert min(seconds) > 0


def test_a_worker_that_fails_is_an_error_at_once():
    with (
        pair("shared", 1000, {"worker": "no such"}) as move,
        pytest.raises(RuntimeError, match="expected an answer from plane shared"),
    ):
        move(1)


class Fake:
    """A coordinator whose `move` is the function given."""

    def __init__(self, move, count=1000):
        self.params = np.zeros(count, np.float32)
        self._move = move

    def move(self):
        self._move(self.params)


def nothing(params):
    """Neither way."""


def there_only(params):
    change(params.copy())


class Once:
    """Moves the first time, and then answers as it did then."""

    def __init__(self):
        self.first = None

    def __call__(self, params):
        if self.first is None:
            change(params)
            self.first = params.copy()
        params[:] = self.first


class OldReplica:
    """Adds the change of a replica that it pulls only once."""

    def __init__(self):
        self.replica = None

    def __call__(self, params):
        if self.replica is None:
            self.replica = params.copy()
        here = places(len(params))
        params[here] -= 2 * self.replica[here]


def all_but_the_last(params):
    change(params)
    params[-1] = -params[-1]


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_a_move_is_timed(random):
    assert move_timed(Fake(change), random) > 0


@pytest.mark.parametrize("move", [nothing, there_only, all_but_the_last])
def test_a_plane_that_does_not_move_is_found_out(move, random):
    with pytest.raises(NotMoved):
        move_timed(Fake(move), random)


@pytest.mark.parametrize("kind", [Once, OldReplica])
def test_a_plane_that_moves_only_once_is_found_out(kind, random):
    fake = Fake(kind())
    move_timed(fake, random)
    with pytest.raises(NotMoved):
        move_timed(fake, random)


def test_the_first_round_looks_at_every_parameter(random):
    def all_but_one(params):
        change(params)
        params[500] = 0

    assert 500 not in places(1000)
    move_whole(Fake(change), random)
    move_timed(Fake(all_but_one), random)
    with pytest.raises(NotMoved, match="1 did not"):
        move_whole(Fake(all_but_one), random)


def test_the_places_include_both_ends():
    assert places(1000)[[0, -1]].tolist() == [0, 999]
    assert len(places(1000)) == 64
    assert places(3).tolist() == [0, 1, 2]


@pytest.fixture
def asked(monkeypatch):
    """No processes: a plane takes as many seconds as its setting says. Yields who was asked."""
    asked = []

    @contextmanager
    def fake(plane, count, setting):
        def move(rounds):
            asked.append((plane, rounds))
            return [setting["seconds"]] * rounds

        yield move

    monkeypatch.setattr(planes, "pair", fake)
    return asked


def test_of_several_candidates_the_fastest_is_kept(asked, monkeypatch):
    candidates = tuple({"seconds": seconds} for seconds in (0.03, 0.01, 0.02))
    monkeypatch.setitem(PLANES, "grpc", PLANES["grpc"]._replace(candidates=candidates))
    best, tried = planes.tune("grpc", 1, rounds=5)
    assert best == {"seconds": 0.01}
    assert [each["ms"] for each in tried] == [30, 10, 20]
    assert asked == [("grpc", planes.WARM_UP), ("grpc", 5)] * 3


def test_a_single_candidate_needs_no_trial(asked):
    assert planes.tune("shared", 1, rounds=5) == (PLANES["shared"].candidates[0], [])
    assert asked == []


def test_planes_are_measured_in_turn(asked):
    best = {plane: {"seconds": number} for number, plane in enumerate(PLANES)}
    milliseconds = planes.measure(best, 1, rounds=4)
    assert milliseconds == {plane: [1e3 * n] * 4 for n, plane in enumerate(PLANES)}
    rounds = [plane for plane, number in asked if number == 1]
    for start in range(0, len(rounds), len(PLANES)):
        assert set(rounds[start : start + len(PLANES)]) == set(PLANES)


def results(**milliseconds):
    tuned = {plane: ({"piece_mb": 1}, []) for plane in milliseconds}
    return planes.results_of(milliseconds, 64, tuned)


def test_the_table_compares_medians_with_both_of_ours():
    shown = results(shared=[1.0, 2.0, 9.0], replica=[8.0], grpc=[40.0])
    assert planes.table(shown).splitlines()[2:] == [
        "| 64 | shared | 2 | 1..9 | 1 | 0.25 | piece_mb 1 |",
        "| 64 | replica | 8 | 8..8 | 4 | 1 | piece_mb 1 |",
        "| 64 | grpc | 40 | 40..40 | 20 | 5 | piece_mb 1 |",
    ]
    assert planes.ratios(shown) == "64 MB: grpc / shared = 20\n64 MB: grpc / replica = 5"


def test_where_a_plane_is_not_measured_nothing_is_compared_with_it():
    shown = results(replica=[8.0], grpc=[40.0])
    assert planes.table(shown).splitlines()[-1].split(" | ")[4] == "-"
    assert planes.ratios(shown) == "64 MB: grpc / replica = 5"


def test_a_plane_whose_package_is_missing_is_left_out(monkeypatch, capsys):
    monkeypatch.setitem(PLANES, "grpc", PLANES["grpc"]._replace(package="no-such-package"))
    assert list(planes.present(["shared", "grpc"])) == ["shared"]
    assert capsys.readouterr().out == (
        "skipping grpc: no-such-package is not installed; pip install no-such-package\n"
    )


def test_wrong_flags_are_refused():
    with pytest.raises(argparse.ArgumentTypeError, match=r"shared, .*; got rpc"):
        arguments.names(list(PLANES))("shared,rpc")
    for text, wrong in (("0", "0"), ("8,", ""), ("1.5", "1.5"), ("-1", "-1")):
        with pytest.raises(argparse.ArgumentTypeError, match=f"got '{wrong}'"):
            arguments.positive_list(text)


@pytest.mark.slow
def test_a_run_prints_and_writes_its_results(tmp_path, capfd):
    path = tmp_path / "planes.json"
    flags = "--megabytes 1 --planes shared,replica --rounds 3 --json"
    planes.main([*flags.split(), str(path)])
    written = json.loads(path.read_text())
    assert [result["plane"] for result in written["results"]] == ["shared", "replica"]
    assert [len(result["all_ms"]) for result in written["results"]] == [3, 3]
    assert "| 1 | replica |" in capfd.readouterr().out
    assert written["about"]["rounds"] == 3
    assert {"numpy", "pyzmq"} <= set(written["about"]["versions"])
