import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks.rehearsal_truth.__main__ as program
import benchmarks.rehearsal_truth.runs as runs
from benchmarks.common import hogbatch_run, source_key
from benchmarks.common.arrival import arrival
from benchmarks.common.hogbatch_run import TrainResult
from benchmarks.rehearsal_truth.__main__ import main
from benchmarks.rehearsal_truth.runs import Programs, TruthRun, processes
from benchmarks.rehearsal_truth.speed import SpeedRun
from benchmarks.rehearsal_truth.table import comparisons, differences, slow, speed_table, table
from hogbatch.data import samples
from hogbatch.servers.description import read_server
from hogbatch.servers.toml_text import to_toml
from tests.support import fake_rehearsal

SAMPLES = Path(samples.__file__).parent
PYTHON = (sys.executable, fake_rehearsal.__file__)
DESCRIPTION = to_toml(read_server("epyc-2cores"))
FAKES = Programs((*PYTHON, "train"), (*PYTHON, "rehearse"))


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A function that returns the command lines of the fake commands so far."""
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_LOG", str(log))
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def truth(tmp_path):
    """The program on the sample with the fake commands; a function of more flags."""
    server = tmp_path / "server.toml"
    server.write_text(DESCRIPTION)
    usual = ["--data", str(SAMPLES), "--out", str(tmp_path / "out"), "--server", str(server)]
    usual += ["--no-speed", "--sets", "a9a", "--seeds", "2", "--workers", "cpu:1/cpu:1,gpu:host"]
    return lambda *more: main([*usual, *more], FAKES)


def point(seconds, rows, loss):
    return {"seconds": seconds, "rows": rows, "test_loss": loss}


def result(mode, seconds=2.0, rows=1000.0, workers="cpu:1", seed=0, **other):
    """The result of one run."""
    made = {"set": "w8a", "workers": workers, "seed": seed, "mode": mode, "error": None}
    return made | {"seconds": seconds, "rows": rows} | other


# The moment of a target ---------------------------------------------------------------------------


def test_a_target_is_interpolated_between_two_evaluations():
    history = [point(1.0, 100, 0.9), point(2.0, 200, None), point(3.0, 500, 0.5)]
    assert arrival(history, 0.6) == pytest.approx((2.5, 400.0))
    assert arrival(history, 0.5) == (3.0, 500.0)
    assert arrival(history, 0.4) is None


def test_a_target_that_the_first_evaluation_meets_is_met_there():
    assert arrival([point(1.0, 100, 0.4), point(2.0, 200, 0.3)], 0.6) == (1.0, 100.0)
    assert arrival([], 0.6) is None


def test_only_the_first_crossing_counts():
    history = [point(1.0, 100, 0.9), point(2.0, 200, 0.5), point(3.0, 300, 0.9)]
    found = arrival([*history, point(4.0, 400, 0.1)], 0.7)
    assert found and found.seconds == pytest.approx(1.5)


# The comparison -----------------------------------------------------------------------------------


def test_medians_of_both_are_compared_over_the_seeds_that_have_both():
    made = [result("real", seconds=s, seed=n) for n, s in enumerate((2.0, 9.0, 2.2, 1.0))]
    made += [result("rehearsed", seconds=s, seed=n) for n, s in enumerate((2.5, 2.6, 2.7))]
    [entry] = comparisons(made)
    assert entry["seeds"] == 3
    assert (entry["seconds"]["real"], entry["seconds"]["rehearsed"]) == (2.2, 2.6)
    assert entry["seconds"]["allowed"] and entry["seconds"]["real_range"] == [2.0, 9.0]
    assert differences([entry]) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"rows": 1160.0}, "w8a, cpu:1: rows 1.16 of the real ones; allowed: 0.85 to 1.15"),
        ({"rows": 840.0}, "w8a, cpu:1: rows 0.84 of the real ones; allowed: 0.85 to 1.15"),
        ({"seconds": 2.5}, "w8a, cpu:1: seconds 1.25 of the real ones; allowed: 0.80 to 1.20"),
        ({"seconds": None}, "w8a, cpu:1: seconds - of the real ones; allowed: 0.80 to 1.20"),
    ],
)
def test_differences_beyond_the_allowed_ones_are_named(changed, line):
    entries = comparisons([result("real"), result("rehearsed", **changed)])
    assert differences(entries) == [line]


def test_oversubscribed_runs_may_differ():
    made = [result("real", workers="cpu:16"), result("rehearsed", rows=9000.0, workers="cpu:16")]
    assert differences(comparisons(made)) == []


def test_the_table_shows_medians_ranges_and_what_is_outside():
    made = [result("real"), result("rehearsed", rows=None, seconds=3.0)]
    assert table(comparisons(made)).splitlines()[2:] == [
        "| w8a, 0.05 | cpu:1 | 1 | 1,000 (1,000 to 1,000) | not reached | - (outside) | "
        "2 (2 to 2) | 3 (3 to 3) | 1.50 (outside) |"
    ]


# Runs ---------------------------------------------------------------------------------------------


def test_both_runs_of_a_pair_have_the_same_flags(calls, truth, tmp_path):
    truth("--seeds", "1")
    real, rehearsed = calls()[:2]
    assert real.startswith("train ") and rehearsed.startswith("rehearse ")
    given = [call.split(" ", 1)[1].split(" --run-dir")[0] for call in (real, rehearsed)]
    own = [" --start-with 1 --checkpoint-seconds 0", f" --server {tmp_path / 'server.toml'}"]
    assert given[0].removesuffix(own[0]) == given[1].removesuffix(own[1])
    assert given[0].endswith(own[0]) and given[1].endswith(own[1])
    assert "--eval-seconds 0.02" in real and "--seed 0" in real


def test_a_real_run_waits_for_all_of_its_workers():
    assert processes("cpu:1,gpu:host")[:2] == ["--start-with", "2"]


def test_real_and_rehearsed_runs_alternate_and_are_compared(truth, calls, tmp_path, capsys):
    assert truth() == 0
    assert [call.split()[0] for call in calls()] == ["train", "rehearse"] * 4
    found = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert found["about"]["server"] == DESCRIPTION
    one, two = found["results"]
    # the fake command trains at 0.9 times the speed of a rehearsal, in the same rows
    assert one["seconds"]["ratio"] == pytest.approx(0.9, abs=0.01)
    assert one["rows"]["ratio"] == pytest.approx(1.0, abs=0.02)
    assert (one["workers"], two["workers"]) == ("cpu:1", "cpu:1,gpu:host")
    assert "0 runs are missing" in capsys.readouterr().out


def test_finished_runs_do_not_run_again_but_failed_ones_do(truth, calls):
    assert truth("--seeds", "14", "--workers", "cpu:1") == 1
    assert len(calls()) == 28
    assert truth("--seeds", "14", "--workers", "cpu:1") == 1
    assert len(calls()) == 30


@pytest.mark.parametrize(("changed", "repeated"), [("digest", 4), ("source_key", 8)])
def test_another_description_repeats_rehearsals_and_other_sources_all(
    changed, repeated, truth, calls, monkeypatch
):
    truth()
    monkeypatch.setattr(runs, changed, lambda *given: "other")
    truth()
    assert len(calls()) == 8 + repeated


def test_the_moment_of_the_target_is_computed_from_the_stored_curve(truth, calls, tmp_path):
    truth()
    file, table = (tmp_path / "out" / name for name in ("runs/a9a--cpu1--0--real.json", "truth.md"))
    before = table.read_text()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seconds": 99.0, "rows": None}))
    truth()
    assert len(calls()) == 8 and table.read_text() == before


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """A function that describes this machine, and the commands that measured it."""
    commands = []

    def profile(command):
        commands.append(command)
        Path(command[-1]).write_text(DESCRIPTION)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(program.subprocess, "run", profile)
    given = argparse.Namespace(server=None, out=tmp_path)
    return lambda: program.described_machine(given), commands


def test_a_machine_is_measured_once(measured):
    describe, commands = measured
    assert describe() == describe() == commands[0][-1] and len(commands) == 1


@pytest.mark.parametrize(
    ("where", "changed"),
    [
        ("machine", {"cpu_model": lambda: "another"}),
        ("os", {"sched_getaffinity": lambda pid: range(96)}),
        ("", {"files_key": lambda folders: "newer"}),
    ],
)
def test_another_machine_or_another_profile_is_measured_again(
    where, changed, measured, monkeypatch
):
    describe, commands = measured
    before = describe()
    [(name, function)] = changed.items()
    monkeypatch.setattr(getattr(program, where) if where else program, name, function)
    assert describe() != before and len(commands) == 2


def test_the_key_of_files_changes_with_the_sources_of_its_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(source_key, "ROOT", tmp_path)
    for name in ("servers", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("1")
    before = source_key.files_key(["servers"])
    (tmp_path / "other" / "a.py").write_text("2")
    assert source_key.files_key(["servers"]) == before
    assert source_key.files_key(["servers", "other"], ["other"]) == before
    (tmp_path / "servers" / "a.py").write_text("2")
    assert source_key.files_key(["servers"]) != before


def test_after_the_budget_no_pair_begins(truth, calls, capsys):
    assert truth("--budget", "1e-9") == 1
    assert calls() == [] and "8 runs are missing" in capsys.readouterr().out


def test_a_run_that_lost_workers_is_an_error(monkeypatch):
    summary = {"faults": {"workers_lost": 1}}
    done = TrainResult(0, "", 1.0, summary)
    monkeypatch.setattr(hogbatch_run, "execute", lambda *given: done)
    found = TruthRun("a9a", "cpu:1", 0, "real", "x").run(SAMPLES, FAKES)
    assert found["error"] == "1 of the workers lost"


def test_missing_data_is_one_sentence(tmp_path, capsys):
    assert main(["--data", str(tmp_path), "--out", str(tmp_path), "--sets", "w8a"]) == 2
    assert capsys.readouterr().err.endswith(
        "w8a.svm.gz does not exist; choose other --sets or another --data\n"
    )


# Speed --------------------------------------------------------------------------------------------


@pytest.fixture
def timed(monkeypatch):
    """Let rehearsals take 1 s and a second for each epoch of 1,000 rows, real runs half of that."""
    calls = []

    def execute(command, limit_s):
        calls.append(command)
        epochs = int(command[command.index("--epochs") + 1])
        summary = {"rows": 1000 * epochs, "train_seconds": epochs / 2}
        return TrainResult(0, "", 1.0 + epochs, summary)

    monkeypatch.setattr(hogbatch_run, "execute", execute)
    return calls


def test_the_speed_is_that_of_the_epochs_after_the_first(timed):
    found = SpeedRun("w8a", "h100-16cores", None).run(SAMPLES, FAKES)
    assert (found["rows_per_s"], found["core_rows_per_s"], found["speed"]) == (1000, 2000, 0.5)
    assert all("--eval-seconds" in command for command in timed)
    assert "cpu:1" in timed[2] and not any("--workers" in command for command in timed[:2])
    assert slow([found]) == []
    assert speed_table([found]).splitlines()[2:] == [
        "| w8a | h100-16cores | default | 1,000 | 2,000 | 0.50 |"
    ]


def test_a_speed_below_half_of_a_core_is_named(timed):
    found = SpeedRun("w8a", "epyc-2cores", "cpu:2").run(SAMPLES, FAKES) | {"speed": 0.44}
    assert slow([found]) == ["w8a, epyc-2cores, cpu:2: speed 0.44; expected at least 0.5"]


def test_a_rehearsal_that_is_too_short_has_no_speed(monkeypatch):
    done = TrainResult(0, "", 1.0, {"rows": 1000, "train_seconds": 1.0})
    monkeypatch.setattr(hogbatch_run, "execute", lambda *given: done)
    found = SpeedRun("w8a", "epyc-2cores", "cpu:2").run(SAMPLES, FAKES)
    assert found["error"] == "8 epochs took no longer than one: too few to measure"
    assert slow([found]) == [] and len(speed_table([found]).splitlines()) == 2
