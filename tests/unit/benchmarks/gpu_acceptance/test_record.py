import json
import math

from benchmarks.gpu_acceptance import record
from benchmarks.gpu_acceptance.record import Failure, Record


def test_the_file_is_complete_after_every_measurement(tmp_path):
    def fails():
        raise RuntimeError("out of order\nmore about it")

    def fails_with_logs():
        raise Failure("exit code 12", {"logs": "no device"})

    path = tmp_path / "stage.json"
    made = Record(path, "stage", {"date": "today"})
    assert made.measure("good", lambda: {"speed": 1.5}) == {"speed": 1.5}
    assert record.read(path) == made.content and not made.failed
    assert made.measure("bad", fails) is None
    made.measure("run", fails_with_logs)
    made.skip("absent", "not installed")
    made.add("losses", [math.nan, {"a": (math.inf, 1.0)}])
    good, bad, run, absent, losses = json.loads(path.read_text())["measurements"]
    assert good["value"] == {"speed": 1.5} and "error" not in good
    assert bad["error"] == "RuntimeError: out of order" and "value" not in bad
    assert (run["error"], run["value"]) == ("exit code 12", {"logs": "no device"})
    assert "skipped" in absent
    assert losses["value"] == [None, {"a": [None, 1.0]}], "strict JSON"
    assert made.failed and record.read(path)["ended"] is None


def test_the_end_is_noted_with_or_without_a_record(tmp_path):
    path = tmp_path / "stage.json"
    Record(path, "stage").add("speed", 1.5)
    closed = record.close(path, "stage", "finished", 2.04)
    assert closed == record.read(path)
    assert closed["ended"] == {"how": "finished", "seconds": 2.0}
    assert closed["measurements"][0]["value"] == 1.5
    record.close(tmp_path / "other.json", "other", "not started: no time left", 0.0)
    assert record.read(tmp_path / "other.json")["measurements"] == []
