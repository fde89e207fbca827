"""Rehearsals of several servers that merge their models."""

import json

import pytest

SERVER = ("--server", "epyc-2cores", "--workers", "cpu:1")
SMALL = ("a9a", "--hidden", 16, "--lease-ms", 2, "--seed", 1)


@pytest.fixture
def rehearse(main, tmp_path):
    """Rehearse in a directory of its own; return the summary."""

    def call(*flags):
        run_dir = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        done = main("rehearse", *SMALL, *SERVER, "--run-dir", run_dir, "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def test_two_servers_divide_the_rows(rehearse):
    found = rehearse("--servers", 2, "--epochs", 3)
    assert found["servers"] == 2 and found["merges"] > 10
    assert found["rows"] == 3 * 16_281  # every second one of a9a
    # The other server trains on while the first one evaluates.
    assert 1.9 < found["all_rows"] / found["rows"] < 4


def test_two_servers_take_little_more_rows_than_one(rehearse):
    one = rehearse("--target-loss", 0.33, "--eval-seconds", 0.005)
    two = rehearse(
        *("--target-loss", 0.33, "--eval-seconds", 0.005),
        *("--servers", 2, "--server-merge", "sum"),
    )
    assert one["status"] == two["status"] == "target"
    assert two["all_rows"] < 1.5 * one["rows"]
    assert two["train_seconds"] < one["train_seconds"]


def test_servers_that_hardly_merge_train_on_their_own_rows(rehearse):
    rare = rehearse("--servers", 4, "--epochs", 2, "--merge-rows", 10**9)
    often = rehearse("--servers", 4, "--epochs", 2)
    assert rare["merges"] == 0
    assert often["test"]["loss"] < rare["test"]["loss"]


def test_two_rehearsals_with_one_seed_are_equal(rehearse):
    flags = ("--servers", 2, "--epochs", 2, "--server-merge", "average", "--server-momentum", 0.5)
    first, second = (rehearse(*flags) for _ in range(2))
    assert first["history"] == second["history"]


def test_a_slow_link_delays_merges(rehearse):
    fast, slow = (
        rehearse("--servers", 2, "--epochs", 2, "--latency-us", us)["merges"] for us in (1, 5000)
    )
    assert slow < fast / 2


def test_the_run_directories_of_the_other_servers_are_removed(rehearse, tmp_path):
    rehearse("--servers", 3, "--epochs", 1)
    assert [each.name for each in tmp_path.iterdir()] == ["run-0"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--servers", "0"), "from 1 to 128; got 0"),
        (("--servers", "129"), "from 1 to 128; got 129"),
        (("--servers", "2", "--merge-rows", "none"), "merge-rows: expected a whole number"),
        (("--servers", "2", "--server-momentum", "1"), "below 1; got 1.0"),
        (("--servers", "2", "--gbit", "-3"), "--gbit: expected a number above 0; got '-3'"),
    ],
)
def test_numbers_out_of_range_are_refused(main, flags, expected):
    done = main("rehearse", "a9a", *SERVER, *flags)
    assert done.returncode == 2 and expected in done.stderr


def test_more_servers_than_rows_are_refused(main, tmp_path):
    rows = tmp_path / "rows.svm"
    rows.write_text("+1 1:1\n-1 2:1\n" * 3)
    flags = ("--test-fraction", 0.5, "--run-dir", tmp_path / "run")
    done = main("rehearse", rows, *SERVER, *flags, "--servers", 8)
    assert done.returncode == 2 and "there are only 3 training rows" in done.stderr
