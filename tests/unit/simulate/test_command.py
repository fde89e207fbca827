import json
import sys

import pytest

from hogbatch.cli.main import main

CREW = "cpu:4x2000rows/s,gpu:1x20000rows/s"


def lines(capsys, *flags):
    assert main(["simulate", *flags]) == 0
    return capsys.readouterr().out.splitlines()


def seen(capsys, *flags):
    """The JSON of a forecast."""
    return json.loads("".join(lines(capsys, *flags, "--json")))


def test_the_forecast_has_the_given_speeds_and_follows_policy_and_seed(capsys):
    flags = ("--workers", CREW, "--max-seconds", "5")
    found, again, other = (
        seen(capsys, *flags, "--policy", "hogbatch", "--seed", seed) for seed in "112"
    )
    assert found == again != other
    cpu, gpu = (sum(worker["rows"] for worker in kind["workers"]) for kind in found["kinds"])
    assert cpu / found["seconds"] == pytest.approx(8000, rel=0.1)
    assert gpu / found["seconds"] == pytest.approx(18_000, rel=0.15)  # nine tenths of its peak
    assert found["rows"] == cpu + gpu
    shares = [
        sum(worker["update_share"] for worker in each["kinds"][0]["workers"])
        for each in (found, seen(capsys, *flags, "--policy", "adaptive"))
    ]
    assert shares[0] > 0.95 and shares[1] < 0.9


def test_parked_workers_are_shown_with_the_reason(capsys):
    flags = ("--workers", "cpu:8x2000rows/s,gpu:1x200000rows/s", "--max-seconds", "4")
    said = lines(capsys, *flags)
    cpu, gpu = (line.split() for line in said if " x " in line)
    assert float(cpu[9].rstrip("%")) > 50 and gpu[9] == "0.0%"
    parked = [line for line in said if "is parked: with it, learning would be" in line]
    assert len(parked) == 6 and "... (8 in all; --json prints every one)" in "".join(said)
    assert len(seen(capsys, *flags)["events"]) == 8
    all_train = lines(capsys, *flags, "--critical-batch", "1e6")
    assert not [line for line in all_train if "is parked" in line]


class Failing:
    def __init__(self, settings):
        pass

    def first_size(self, worker):
        return 64

    def next_size(self, worker, others):
        raise ValueError("no idea")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policy", f"{__name__}:Failing"], "next_size failed with ValueError: no idea"),
        (["--workers", "16"], "workers: expected a list such as"),
        (["--workers", "cpu:1x0rows/s"], "workers: expected a list such as"),
        (["--workers", "cpu:16384x1rows/s,gpu:1x1rows/s"], "at most 16384"),
        (["--rows", "0"], "--rows: expected a whole number from 1 to 1000000000000; got '0'"),
        (
            ["--alpha", "3"],
            "--alpha needs --policy paper-adaptive or module:Class; got --p",
        ),
    ],
)
def test_bad_values_are_one_sentence(capsys, flags, words):
    assert main(["simulate", *flags]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


OWN = """
from hogbatch.policy.fixed import Fixed

class Largest(Fixed):
    def first_size(self, worker):
        return worker.largest
"""


def test_a_policy_in_the_working_directory_is_simulated(capsys, tmp_path, monkeypatch):
    (tmp_path / "largest_batches.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [each for each in sys.path if each])
    found = seen(capsys, "--policy", "largest_batches:Largest", "--max-seconds", "1")
    assert found["kinds"][0]["workers"][0]["batch_size"] == 128
