import subprocess

from benchmarks.common import machine


def test_directories_are_removed_from_flags_only():
    command = "scripts/bench extreme --data=/a/b/c.xmc --test ../d/e.xmc"
    shown = "scripts/bench extreme --data=DIR/c.xmc --test DIR/e.xmc"
    assert machine.without_directories(command) == shown


def test_a_driver_query_that_hangs_has_no_result(monkeypatch):
    def hangs(command, timeout, **given):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert machine.nvidia_driver() is None
    assert list(machine.versions("numpy", "no-such-package")) == ["numpy"]
