"""The memory of a run: as much as estimated, and never more than is available."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.values import parse_workers
from hogbatch.events.event import CheckpointWritten, Evaluation, LeaseDone
from hogbatch.model.footprint import RunSizes, total, whole_run
from hogbatch.model.network import Network
from tests.support.fault_injection import ENDLESS, WITHIN_S, wait_for
from tests.support.memory_cgroup import memory_cgroup
from tests.support.other_user import as_root

ROWS, FEATURES, HIDDEN = 200, 100, 3500


@pytest.fixture
def file(tmp_path):
    random = np.random.default_rng(1)
    path = tmp_path / "rows.npz"
    x = random.standard_normal((ROWS, FEATURES)).astype(np.float32)
    np.savez(path, X=x, y=(x[:, 0] > 0).astype(float))
    return path


def family(pid):
    """A process and all that it has started."""
    found = [pid]
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                found += family(int(child))
    return found


def memory(pid):
    """Bytes of a process's own, and those that it shares; 0 once it has ended."""
    with suppress(OSError):
        lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        sizes = {words[0]: 1024 * int(words[1]) for words in lines if words[0].startswith("Rss")}
        return sizes.get("RssAnon:", 0), sizes.get("RssShmem:", 0)
    return 0, 0


def peak(job):
    """The most bytes that a run has taken at one time, until it has done everything repeatedly."""
    most = 0

    def measured():
        nonlocal most
        sizes = [memory(pid) for pid in family(job.coordinator.pid)]
        own, shared = (list(each) for each in zip(*sizes, strict=True))
        most = max(most, sum(own) + max(shared))
        assert job.coordinator.poll() is None, job.said(job.coordinator)
        kinds = LeaseDone, Evaluation, CheckpointWritten
        return all(len(job.events(kind)) >= 3 for kind in kinds)

    wait_for(measured, "the run trains, is evaluated and is saved")
    return most


def test_a_run_takes_no_more_than_is_estimated_and_more_than_half(job, file):
    workers, optimizer = "cpu:1,gpu:host", "adam"
    network = Network.build(FEATURES, (HIDDEN, HIDDEN), 1, "relu", "logistic")
    problem = RunSizes(network, OPTIMIZERS[optimizer].slots, 10**5, ROWS, sparse=False)
    estimated = total(whole_run(problem, parse_workers(workers), checkpoints=True, average=False))
    assert problem.model > 49e6
    flags = ("--workers", workers, "--optimizer", optimizer, "--gpu-batch", "64:64", "-q")
    often = (*ENDLESS, "--eval-seconds", "0.1", "--checkpoint-seconds", "0.1")
    job.train(file, *flags, *often, "--hidden", f"{HIDDEN},{HIDDEN}")
    measured = peak(job)
    job.interrupt()
    assert estimated / 2 < measured < estimated, (measured / 1e6, estimated / 1e6)


NEARLY_FULL = """
import sys
from hogbatch.machine import budget
budget.free_memory = lambda: 10_000_000
sys.argv[1:] = {arguments!r}
from {module} import main
sys.exit(main())
"""


def on_a_nearly_full_machine(module, *arguments):
    """Run a command that is told of 10 MB of free memory."""
    code = NEARLY_FULL.format(module=module, arguments=[str(each) for each in arguments])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)


def test_what_does_not_fit_is_refused_before_it_takes_anything(job, file):
    run_dir = job.folder / "other"
    flags = ("--workers", "cpu:2", "--run-dir", run_dir)
    refused = on_a_nearly_full_machine("hogbatch.cli.main", "train", file, *flags)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
    assert "of free memory for this run (" in refused.stderr and "got 10 MB" in refused.stderr
    assert not run_dir.exists()
    job.coordinate("a9a", "-q")
    refused = on_a_nearly_full_machine("hogbatch.workers.cpu", job.run_dir, "--threads", 2)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
    assert "of free memory for worker cpu:2 (processes 120 MB" in refused.stderr
    assert job.coordinator.poll() is None, "the run goes on"


@as_root
def test_a_run_beyond_its_cgroup_is_refused_and_none_of_it_is_killed(tmp_path, file):
    flags = ("--workers", "cpu:2", "--hidden", f"{HIDDEN},{HIDDEN}", "-q")
    train = [sys.executable, "-m", "hogbatch.cli.main", "train", str(file), *flags]
    with memory_cgroup(400 << 20) as group:
        enter = f"echo $$ > {group}/cgroup.procs && exec "
        ran = subprocess.run(
            ["sh", "-c", enter + '"$@"', "sh", *train, "--run-dir", tmp_path / "run"],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
    assert ran.returncode == 2, ran.stderr
    assert "copies of the model" in ran.stderr and "(the limit of its cgroup)" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
