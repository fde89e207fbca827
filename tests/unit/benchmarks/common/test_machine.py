import subprocess
import sys
from types import SimpleNamespace

from benchmarks.common import machine


def started_as(monkeypatch, name, *flags):
    """Pretend that this process was started as `python -m NAME flags`."""
    spec = SimpleNamespace(name=name)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
    monkeypatch.setattr(sys, "argv", ["/some/where/file.py", *flags])


def test_the_command_is_that_of_the_script(monkeypatch):
    started_as(monkeypatch, "benchmarks.slide.__main__", "--seeds", "1")
    assert machine.command() == "scripts/bench slide --seeds 1"
    started_as(monkeypatch, "benchmarks.time_to_loss")
    assert machine.command() == "scripts/bench time_to_loss"
    started_as(monkeypatch, "pytest.__main__", "-q")
    assert machine.command() == "file.py -q"


def test_directories_are_removed_from_flags_only():
    command = "scripts/bench slide --data=/a/b/c.xmc --test ../d/e.xmc"
    shown = "scripts/bench slide --data=DIR/c.xmc --test DIR/e.xmc"
    assert machine.without_directories(command) == shown


def test_a_driver_query_that_hangs_has_no_result(monkeypatch):
    def hangs(command, timeout, **given):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert machine.nvidia_driver() is None
    assert list(machine.versions("numpy", "no-such-package")) == ["numpy"]
