"""Stage cli: hogbatch train with a GPU worker.

It runs alone and with CPU workers, and with the GPU worker killed during training. Every run is
checked against the ledger: in each epoch, every row is acknowledged exactly once.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.common.cases import CASES
from benchmarks.common.data_sets import Task
from benchmarks.common.job import Job
from benchmarks.common.run_history import Life, audit, check_summary
from benchmarks.common.watched_run import WatchedRun, watched
from benchmarks.gpu_acceptance.processes import ROOT
from benchmarks.gpu_acceptance.record import Failure, Json, Unfinished, clipped, one_line
from benchmarks.gpu_acceptance.stage import START_S, Stage
from hogbatch.events.event import Event, LeaseDone, WorkerLeft
from hogbatch.machine.linux import read_topology

SAMPLES: Final = ROOT / "hogbatch" / "data" / "samples"
SECONDS, QUICK_SECONDS = 6, 1
ENDLESS: Final = ("--epochs", 1_000_000, "--patience", 0, "--lease-ms", 20)
ALL_TRAIN: Final = ("--policy", "paper-adaptive")  # the default may park workers
INTERRUPTED: Final = 130
LOG_CHARACTERS: Final = 3000  # kept of each log of a run that failed
TOTALS: Final = (  # of a worker, kept from summary.json
    *("name", "rows", "updates", "busy", "utilization", "batch_size", "staleness"),
    *("merge_seconds", "transferred", "transfer_seconds"),
)
MOST_SECONDS: Final = 120  # of the interrupted run, in case the stage itself is killed
LEASES: Final = 3  # that a worker has done before it is killed
# With batches of one row, an epoch takes the CPU worker a tenth of a second instead of a hundredth.
# A worker whose batch takes longer than the others' epoch gets rows only in rare trials, so one
# slow batch of the GPU would leave it without rows for a long time (`Worker.trial_is_due`).
SLOW_CPU: Final = ("--cpu-batch", 1)


SETS: Final = {name: CASES[name].task for name in ("a9a", "w8a", "citeulike")}


def run(stage: Stage) -> None:
    """Alone and with CPU workers on each data set, then a kill; the bundled sample first."""
    together = f"cpu:{max(1, read_topology().threads - 1)},gpu:0"
    for which in ["a9a"] if stage.settings.quick else SETS:
        directory = SAMPLES if which == "a9a" else Path(stage.settings.data)
        for workers in ("gpu:0", together):
            work = partial(trained, stage, directory, SETS[which], workers)
            _measure(stage, f"{which} {workers}", directory / SETS[which].data, work)
        if which == "a9a":
            killing = partial(killed, stage, together)
            _measure(stage, "a9a, GPU worker killed", directory / SETS[which].data, killing)


def _measure(stage: Stage, name: str, data: Path, work: Callable[[], Json]) -> None:
    """Measure, unless the data are missing or no time is left."""
    if not (stage.settings.data or data.is_relative_to(SAMPLES)) or not data.exists():
        stage.record.skip(name, f"{data.name} is missing; give its directory with --data")
    elif stage.left_s <= 0:
        stage.record.skip(name, "no time left")
    else:
        stage.record.measure(name, partial(_in_time, stage, work))


def _in_time(stage: Stage, work: Callable[[], Json]) -> Json:
    """The result of `work`; Unfinished if it failed because there was little time from the start.

    With more time, it hangs, which is a failure.
    """
    allowed_s = stage.left_s
    try:
        return work()
    except Exception as error:
        if stage.left_s <= 0 and allowed_s < START_S + SECONDS:
            raise Unfinished(f"not finished within {allowed_s:.0f} s") from error
        raise


@contextmanager
def new_job() -> Iterator[WatchedRun]:
    """A run in a temporary directory; an exception becomes a Failure with the logs of the run."""
    with watched() as job:
        try:
            yield job
        except Exception as error:
            paths = sorted([*job.folder.glob("*.err"), *job.run_dir.glob("worker-*.log")])
            logs = {path.name: path.read_text(errors="replace")[-LOG_CHARACTERS:] for path in paths}
            raise Failure(one_line(error), {"logs": logs}) from error


def data_flags(directory: Path, task: Task, quick: bool) -> list[str]:
    """Flags of `hogbatch train` for the data and the network."""
    return (replace(task, hidden=(8,)) if quick else task).flags(directory)


def rows_of(directory: Path, task: Task) -> int:
    """The number of training rows, as `hogbatch train` splits them."""
    return task.load(directory).train.rows


def trained(stage: Stage, directory: Path, task: Task, workers: str) -> Json:
    """Train for a few seconds and return the totals; RuntimeError if a check fails."""
    quick = stage.settings.quick
    with new_job() as job:
        flags = ["--workers", workers, "--start-with", workers.count(",") + 1]
        seconds = QUICK_SECONDS if quick else SECONDS
        limits = [*ENDLESS[:4], "--max-seconds", seconds, *ALL_TRAIN, "--quiet"]
        process = job.train(*data_flags(directory, task, quick), *flags, *limits)
        try:
            code = process.wait(max(1.0, stage.left_s))
        except subprocess.TimeoutExpired:
            raise RuntimeError("timed out") from None
        if code != 0:
            raise RuntimeError(f"exit code {code}: {clipped(job.said(process).strip(), 500)}")
        result = outcome(job)
        problems = problems_of(job) + ledger(job, rows_of(directory, task))
        if problems:
            raise RuntimeError("; ".join(problems))
    return result


def outcome(job: Job) -> Json:
    """Totals of a finished run."""
    summary = job.summary()
    gpu = next(worker for worker in summary["workers"] if worker["device"] == "gpu")
    blocked_s, seconds = gpu["merge_seconds"], summary["train_seconds"]
    return {
        "train_seconds": summary["train_seconds"],
        "rows": summary["rows"],
        "losses": [[point["train_loss"], point["validation_loss"]] for point in summary["history"]],
        "merging": None if blocked_s is None else blocked_s / seconds,  # fraction of the time
        "workers": [{name: worker[name] for name in TOTALS} for worker in summary["workers"]],
    }


def problems_of(job: Job) -> list[str]:
    """Problems of a finished run, one sentence each."""
    summary, problems = job.summary(), []
    losses = [point["train_loss"] for point in summary["history"] if point["rows"] > 0]
    if not losses or None in losses:
        problems.append(f"there was no finite training loss: {losses}")
    elif len(losses) > 1 and losses[-1] >= losses[0]:
        problems.append(f"the training loss did not fall: {losses[0]:.4g}, ..., {losses[-1]:.4g}")
    if sum(worker["rows"] for worker in summary["workers"] if worker["device"] == "gpu") == 0:
        problems.append("the GPU worker trained on no row")
    if faults := {name: count for name, count in summary["faults"].items() if count}:
        problems.append(f"faults: {faults}")
    return problems


def ledger(job: Job, rows: int) -> list[str]:
    """Rows that were not acknowledged exactly once in each epoch, and wrong totals."""
    life = Life.of(job.events(Event))
    return audit([life], rows) + check_summary(job.summary(), life)


def killed(stage: Stage, workers: str) -> Json:
    """Kill the GPU worker while it trains; it must be replaced, and no row may be lost."""
    task = SETS["a9a"]
    with new_job() as job:
        job.train(
            *data_flags(SAMPLES, task, stage.settings.quick),
            *("--workers", workers, "--start-with", workers.count(",") + 1, *ENDLESS),
            *("--eval-seconds", 5, "--quiet", "--max-seconds", MOST_SECONDS, *ALL_TRAIN, *SLOW_CPU),
        )
        # Both workers may compile before the first lease.
        within, at_work = max(1.0, stage.left_s), partial(gpus_at_work, job)
        [(name, pid)] = job.wait_in_run(at_work, "the GPU worker trains", within)
        os.kill(pid, signal.SIGKILL)
        left = job.wait_for_event(WorkerLeft, worker=name)
        [(again, _)] = job.wait_in_run(at_work, "another one replaces it")
        back = next(lease for lease in job.since(0, LeaseDone) if lease.worker == again)
        code = job.interrupt()
        problems = ledger(job, rows_of(SAMPLES, task)) + job.leftovers()
        if code != INTERRUPTED:
            problems.append(f"exit code {code}, expected {INTERRUPTED}")
        if problems:
            raise RuntimeError("; ".join(problems))
    return {
        "killed": name,
        "reissued": left.reissued,
        "replaced_by": again,
        "trains_again_after_s": round(back.at - left.at, 2),
    }


def gpus_at_work(job: WatchedRun) -> list[tuple[str, int]]:
    """(name, pid) of the attached GPU workers that have done some leases."""
    return [item for item in job.log.at_work(LEASES).items() if item[0].startswith("gpu")]
