"""The parts of stages that need no device."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_acceptance import cli, sanitizer, step, together
from benchmarks.gpu_acceptance.preflight import lost_beside
from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.sanitizer import findings
from benchmarks.gpu_acceptance.stage import START_S, ResultFile, Settings
from benchmarks.gpu_acceptance.tests import OutcomeLog


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "stage.json", "stage")


def measurements(record):
    """What was recorded: name, and which of value, error and skipped it has."""
    kinds = ("error", "skipped", "value")
    return {
        each["name"]: next(kind for kind in kinds if kind in each)
        for each in record.content["measurements"]
    }


class Session:
    """A file of events of pytest, of four tests."""

    def __init__(self, path, record):
        self.log, self._path = OutcomeLog(path, record), path
        self.write("collected", "", tests=4)

    def write(self, event, name, **fields):
        with self._path.open("a") as file:
            file.write(json.dumps({"event": event, "name": name} | fields) + "\n")
        self.log.poll()

    def end(self, name, outcome, message=""):
        self.write("started", name)
        self.write("ended", name, outcome=outcome, seconds=0.5, message=message)


@pytest.fixture
def tests(tmp_path, record):
    return Session(tmp_path / "events", record)


def test_every_test_is_recorded_when_it_has_ended(tests, record):
    tests.end("one", "passed")
    tests.end("two", "failed", "def f():\n>   g()\nE   ValueError: wrong\nE   more\n\nfile.py:3")
    tests.end("three", "skipped", "Skipped: no such GPU")
    assert measurements(record) == {"one": "value", "two": "error", "three": "skipped"}
    assert record.content["measurements"][1]["error"] == "ValueError: wrong"
    tests.end("four", "passed")
    tests.log.summarise(0)
    counts = record.content["measurements"][-1]["value"]
    assert counts == {"passed": 2, "failed": 1, "skipped": 1, "collected": 4}


def test_a_test_that_ended_its_process_has_failed(tests, record):
    tests.end("one", "passed")
    tests.write("started", "two")
    assert tests.log.stopped
    tests.log.interrupted("its process: died by signal 11")
    tests.log.interrupted("its process: died by signal 11")
    assert measurements(record) == {"one": "value", "two": "error"}
    tests.log.summarise(None)
    assert record.content["measurements"][-1]["error"] == "2 not started"


def test_no_tests_at_all_are_a_failure(tmp_path, record):
    OutcomeLog(tmp_path / "none", record).summarise(4)
    (found,) = record.content["measurements"]
    assert found["error"] == "no test was started: pytest: exit code 4"


def test_lost_updates_are_the_difference_of_the_sums():
    shared = np.zeros(5, np.float32)
    found = lost_beside(shared, lambda: None, merges=2)  # merges whose updates are all lost
    assert found["lost"] == 2 * 5 and found["lost_per_cell_and_merge"] == 1


def test_the_errors_of_the_sanitizer_are_counted_over_its_processes(record):
    clean = "========= COMPUTE-SANITIZER\n3 passed\n========= ERROR SUMMARY: 0 errors\n"
    assert findings(clean) == {"errors": 0, "first": []}
    bad = "========= Invalid __global__ write\n========= ERROR SUMMARY: 3 errors\n"
    assert findings(clean + bad)["errors"] == 3
    assert "========= Invalid __global__ write" in findings(clean + bad)["first"]
    race = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n"
    assert findings(race)["errors"] == 2
    assert findings("Error: no GPU\n")["errors"] is None
    for text, kind in (("", "skipped"), ("========= Invalid __global__ write\n", "error")):
        stage = KilledParts(record, 30.0, "========= COMPUTE-SANITIZER\n" + text)
        sanitizer.check(stage, kind, ["memcheck"], "test_it.py", 30.0)
        assert measurements(record)[kind] == kind, "it was killed before its summary"


def step_result(batch, **fields):
    named = {"network": "54-512x3-7", "precision": "tf32", "batch": batch}
    return named | {"mismatched": [], "diverged": []} | fields


def test_results_of_gpu_step_are_recorded_once_and_mismatches_fail(tmp_path, record):
    results = ResultFile(tmp_path / "out.json", step.Results(record).add)
    results.poll()
    found = [step_result(256)]
    for _ in range(2):
        content = {"about": {"square_tflops": {"tf32": {"hogbatch": 1.0}}}, "results": found}
        results.path.write_text(json.dumps(content))
        results.poll()
        results.poll()
        found.append(step_result(8192, mismatched=["graph"]))
    assert measurements(record) == {
        "square product, tf32": "value",
        "54-512x3-7, tf32, 256 rows": "value",
        "54-512x3-7, tf32, 8192 rows": "error",
    }
    assert results.count == 2


class KilledParts:
    """In place of a stage: each part uses its whole limit, and writes `content` before."""

    def __init__(self, record, left_s, content):
        self.record, self.left_s, self._content = record, left_s, content

    def follow(self, command, poll=lambda: None, output=None, limit_s=None):
        if output:
            output.write(self._content)
        else:
            Path(command[command.index("--json") + 1]).write_text(json.dumps(self._content))
        poll()
        self.left_s -= limit_s


def test_a_data_set_that_is_killed_after_some_runs_has_not_failed(record, tmp_path):
    run = {"set": "w8a", "name": "cpu", "seed": 0, "seconds": 1.0, "error": None}
    stage = KilledParts(record, 60.0, {"about": {"limit_s": 10.0}, "results": [run]})
    together.measure(stage, "w8a", tmp_path, together.PARTS["w8a"], [], 60.0)
    assert measurements(record) == {"w8a cpu seed 0": "value", "w8a": "skipped"}
    assert record.content["measurements"][0]["value"]["limit_s"] == 10.0
    together.add_run(record, run | {"name": "gpu", "error": "exit code 12"}, {"limit_s": 10.0})
    assert measurements(record)["w8a gpu seed 0"] == "error"


@pytest.mark.parametrize(
    ("left_s", "used_s", "kind"),
    [(START_S, START_S, "skipped"), (START_S, 1.0, "error"), (9 * START_S, 9 * START_S, "error")],
    ids=["too little time", "a failure in time", "hangs"],
)
def test_a_run_that_had_too_little_time_has_not_failed(record, left_s, used_s, kind):
    stage = KilledParts(record, left_s, "")
    stage.settings = Settings(left_s)

    def work():
        stage.left_s -= used_s
        raise RuntimeError("timed out")

    cli._measure(stage, "run", cli.SAMPLES, work)
    assert measurements(record) == {"run": kind}
