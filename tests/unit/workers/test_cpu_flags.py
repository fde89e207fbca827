import os
import sys

import pytest

from hogbatch.workers import cpu


@pytest.fixture
def started(monkeypatch):
    """Call main with these flags on a server of cores 0 to 3; return the engine it would run."""

    def start(*flags):
        engines = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
        monkeypatch.setattr(cpu, "run", lambda run_dir, engine, launched: engines.append(engine))
        monkeypatch.setattr(sys, "argv", ["cpu", "run", *flags])
        cpu.main()
        return engines[0]

    return start


@pytest.mark.parametrize(
    ("flags", "threads", "cores"),
    [
        ([], range(1, 5), ()),  # fewer than 4 where a cgroup grants less
        (["--threads", "3"], [3], ()),
        (["--cores", "2,0-1"], [3], (2, 0, 1)),
        (["--cores", "3", "--threads", "1"], [1], (3,)),
    ],
)
def test_there_is_one_thread_per_listed_core(started, flags, threads, cores):
    engine = started(*flags)
    assert engine.threads in threads and engine._cores == cores
    assert engine.label == f"cpu:{engine.threads}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threads", "0"], "--threads must be at least 1; got 0"),
        (["--cores", "3-2"], "--cores: expected a range from low to high; got '3-2'"),
        (
            ["--cores", "2-5"],
            "--cores: expected cores out of 0-3, which this process may use; got 4-5",
        ),
        (
            ["--cores", "0-2", "--threads", "2"],
            "--cores must name one core for each of 2 threads; got 3 cores",
        ),
    ],
)
def test_a_bad_flag_is_refused_in_one_sentence(started, capsys, flags, message):
    with pytest.raises(SystemExit) as refusal:
        started(*flags)
    assert refusal.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(message)


def test_a_missing_core_is_only_a_warning(monkeypatch, caplog):
    def refuse(pid, cores):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    cpu.pin(7)
    assert caplog.messages == ["a thread is not pinned to core 7: Invalid argument"]
