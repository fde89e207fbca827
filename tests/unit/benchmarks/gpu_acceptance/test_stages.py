"""The parts of stages that need no process and no device."""

import json

import numpy as np
import pytest

from benchmarks.gpu_acceptance import together
from benchmarks.gpu_acceptance.gpu_tests import OutcomeLog, last
from benchmarks.gpu_acceptance.preflight.lost_updates import account
from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.sanitizer import findings
from benchmarks.gpu_acceptance.step import ResultFile
from benchmarks.gpu_acceptance.together import RunFile
from benchmarks.heterogeneous.cases import CASES


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
    """A file of events of pytest."""

    def __init__(self, path, record):
        self.log, self._path = OutcomeLog(path, record), path

    def write(self, event, name, **fields):
        with self._path.open("a") as file:
            file.write(json.dumps({"event": event, "name": name} | fields) + "\n")
        self.log.poll()

    def end(self, name, outcome, message=""):
        self.write("started", name)
        self.write("ended", name, outcome=outcome, seconds=0.5, message=message)


@pytest.fixture
def tests(tmp_path, record):
    made = Session(tmp_path / "events", record)
    made.write("collected", "", tests=4)
    return made


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
    assert record.content["measurements"][0]["error"] == (
        "no test was started: pytest: exit code 4"
    )


def test_the_error_of_a_traceback_is_its_first_marked_line():
    assert last("E   A: b\nE   c\nx.py:1") == "A: b"
    assert last("no mark\nthe last") == "the last"
    assert last("") == ""


def test_lost_updates_are_the_difference_of_the_sums():
    parts = [np.full(3, 12.0, np.float32), np.full(2, 15.0, np.float32)]
    found = account(parts, [10, 15], merges=2)
    assert found["lost"] == 2 * 2  # the second part lacks both merges
    assert found["lost_per_merge"] == 2 and found["lost_per_cell_and_merge"] == 2 / 5


def test_the_errors_of_the_sanitizer_are_counted_over_its_processes():
    clean = "========= COMPUTE-SANITIZER\n3 passed\n========= ERROR SUMMARY: 0 errors\n"
    assert findings(clean) == {"errors": 0, "first": []}
    bad = "========= Invalid __global__ write\n========= ERROR SUMMARY: 3 errors\n"
    assert findings(clean + bad)["errors"] == 3
    assert "========= Invalid __global__ write" in findings(clean + bad)["first"]
    race = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n"
    assert findings(race)["errors"] == 2
    assert findings("Error: no GPU\n")["errors"] is None


def step_result(batch, **fields):
    named = {"network": "54-512x3-7", "precision": "tf32", "batch": batch}
    return named | {"mismatched": [], "diverged": []} | fields


def test_results_of_gpu_step_are_recorded_once_and_mismatches_fail(tmp_path, record):
    results = ResultFile(tmp_path / "out.json", record)
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
    assert "value" in record.content["measurements"][-1] and results.count == 2


def test_runs_of_heterogeneous_are_recorded_and_failed_runs_fail(tmp_path, record):
    runs = RunFile(tmp_path / "out.json", record)
    found = [
        {"set": "w8a", "name": name, "seed": 0, "seconds": 1.0, "error": error}
        for name, error in (("cpu", None), ("gpu", "exit code 12"))
    ]
    runs.path.write_text(json.dumps({"about": {"limit_s": 10.0}, "results": found}))
    runs.poll()
    runs.poll()
    assert measurements(record) == {"w8a cpu seed 0": "value", "w8a gpu seed 0": "error"}
    assert record.content["measurements"][0]["value"]["limit_s"] == 10.0


def test_the_files_of_the_data_sets_are_those_of_heterogeneous(tmp_path):
    for which, names in together.FILES.items():
        assert CASES[which].task.files(tmp_path) == [tmp_path / name for name in names]
    assert together.SETS.keys() == together.FILES.keys()
