"""Does memory grow over many epochs, and are descriptors left open?"""

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.common.watched_run import ENDLESS, WatchedRun, watched
from benchmarks.faults.figures import slope

FLAGS = ("a9a", "--hidden", 32, "--workers", "cpu:1,cpu:1", *ENDLESS)
HOUR_S, MB = 3600.0, 1e6
EVERY_S = 1.0

Sample = dict[str, Any]


def measure(seconds: float, warm_up: float, flags: tuple[object, ...]) -> dict[str, Any]:
    """Sample each process once a second; slopes after `warm_up` seconds, in MB an hour."""
    with watched() as run:
        run.start(*FLAGS, *flags)
        run.wait_in_run(lambda: len(run.log.at_work()) == 2, "both workers train")
        processes = {"coordinator": run.coordinator.pid, **run.log.at_work()}
        samples = sampled(run, processes, seconds)
        code = run.interrupt()
        summary = run.summary()
    return {
        "question": "soak",
        "seconds": seconds,
        "warm_up_seconds": warm_up,
        "epochs": round(summary["epochs"], 1),
        "evaluations": len(summary["history"]),
        "exit_code": code,
        "processes": {name: account(found, warm_up) for name, found in samples.items()},
        "samples": samples,
    }


def sampled(run: WatchedRun, processes: dict[str, int], seconds: float) -> dict[str, list[Sample]]:
    """Samples of each process, once a second."""
    samples: dict[str, list[Sample]] = {name: [] for name in processes}
    start = time.monotonic()
    for number in range(round(seconds / EVERY_S)):
        time.sleep(max(0.0, start + number * EVERY_S - time.monotonic()))
        if not run.running:
            raise RuntimeError(f"the run has ended: {run.said(run.coordinator)}")
        for name, pid in processes.items():
            samples[name].append({"at": round(time.monotonic() - start, 3), **sample(pid)})
        if number % 30 == 0:
            print(
                f"{number} s: { {name: found[-1] for name, found in samples.items()} }", flush=True
            )
    return samples


def sample(pid: int) -> Sample:
    """Resident bytes, private resident bytes, open descriptors and threads of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {
        "resident": 1024 * int(fields["VmRSS"].split()[0]),
        "anonymous": 1024 * int(fields["RssAnon"].split()[0]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(fields["Threads"]),
    }


def account(samples: list[Sample], warm_up: float) -> dict[str, Any]:
    """Slopes with standard errors, and the distinct values of figures that should not change."""
    settled = [each for each in samples if each["at"] >= warm_up]
    found: dict[str, Any] = {}
    at = [each["at"] for each in settled]
    for kind in ("resident", "anonymous"):
        values = [each[kind] for each in settled]
        per_hour = [figure * HOUR_S / MB for figure in slope(at, values)]
        names = (f"{kind}_mb_per_hour", f"{kind}_standard_error")
        found |= dict(zip(names, (round(figure, 4) for figure in per_hour), strict=True))
        found[f"{kind}_mb"] = round(values[-1] / MB, 3)
    for kind in ("descriptors", "threads"):
        found[kind] = sorted({each[kind] for each in settled})
    return found
