"""The cores on which the threads of real workers may run."""

import os
from pathlib import Path

from hogbatch.machine.topology import parse_cores, show_cores
from tests.support.fault_injection import wait_for

ALL = frozenset(os.sched_getaffinity(0))


def masks(pid):
    """The affinity mask of each thread of a process."""
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = status.read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
        fields = dict(line.split(":", 1) for line in lines)
        yield frozenset(parse_cores(fields["Cpus_allowed_list"]))


def test_each_computing_thread_stays_on_its_core_and_no_other_thread_does(job):
    cores = sorted(ALL)[-2:]
    job.coordinate("a9a", "--max-seconds", 300, "-q")
    worker = job.attach("cpu", "--cores", show_cores(cores))
    job.wait_for_event("lease")
    own = [frozenset({core}) for core in cores]
    wait_for(lambda: set(own) <= set(masks(worker.pid)), "its threads are pinned")
    found = list(masks(worker.pid))
    assert ALL in found
    assert sorted((mask for mask in found if mask != ALL), key=min) == [
        mask for mask in own if mask != ALL
    ]


def test_without_pinning_every_thread_may_run_everywhere(job):
    job.train("a9a", "--workers", "cpu:1", "--max-seconds", 300, "--no-pin", "-q")
    job.wait_for_event("lease")
    (worker,) = [pid for pid in job.processes() if pid != job.coordinator.pid]
    assert set(masks(worker)) == {ALL}


def test_the_coordinator_may_run_everywhere(job):
    job.train("a9a", "--workers", "cpu:1", "--max-seconds", 300, "-q")
    wait_for(lambda: job.events("lease"), "the first lease")
    assert set(masks(job.coordinator.pid)) == {ALL}
