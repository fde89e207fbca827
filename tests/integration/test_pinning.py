"""The cores on which the threads of real processes may run."""

import os
from pathlib import Path

from hogbatch.machine.topology import parse_cores, show_cores
from tests.support.fault_injection import ENDLESS, wait_for

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
    job.coordinate("a9a", *ENDLESS, "-q")
    worker = job.attach("cpu", "--cores", show_cores(cores))
    free = job.attach()
    for name in ("cpu-0", "cpu-1"):
        job.wait_for_event("lease", worker=name)
    own = [frozenset({core}) for core in cores]
    wait_for(lambda: set(own) <= set(masks(worker.pid)), "its threads are pinned")
    found = list(masks(worker.pid))
    assert ALL in found
    assert sorted((mask for mask in found if mask != ALL), key=min) == [
        mask for mask in own if mask != ALL
    ]
    assert set(masks(free.pid)) == set(masks(job.coordinator.pid)) == {ALL}
