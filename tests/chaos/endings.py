"""Ends runs on several servers in random ways, and checks what is left of each."""

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.common.job import command_line
from hogbatch.events.event import CheckpointWritten, ServersMerged, WorkerJoined
from hogbatch.machine.temporary import PREFIX, TemporaryDirectory
from tests.support.fault_injection import Job, wait_for
from tests.support.ray_cluster import processes_that_call_ray, two_machines

FLAGS = ("--servers", 2, "--per-server", "cpu:1", "--max-seconds", 1000, "--plain")
LONGEST_S = 3.0  # after the first merge
LINES = 40  # of stderr, at most
ENDED, KILLED, FAILED = 130, -signal.SIGKILL, 6  # exit codes


class Run:
    """A run on two servers, on the machines of a Ray cluster if there is one."""

    def __init__(self, folder: Path, chance: random.Random, cluster: Any) -> None:
        self.job, self.chance, self.cluster = Job(folder), chance, cluster
        self.where = ("--cluster", cluster.address if cluster else "local")
        rare = ("--eval-seconds", 1000) if chance.random() < 0.5 else ()
        self.job.train("a9a", *self.where, *FLAGS, *rare)
        self.job.wait_for_event(ServersMerged)
        time.sleep(chance.uniform(0.0, LONGEST_S))

    @property
    def servers(self) -> list[int]:
        """The processes of servers that have joined, also of those that have ended."""
        return [event.pid for event in self.job.events(WorkerJoined)]

    def send(self, number: signal.Signals, *processes: int) -> None:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def driver(self, number: signal.Signals) -> int:
        self.job.coordinator.send_signal(number)
        return self.job.finish()

    def ray(self, *kinds: str, machines: int = 2) -> list[int]:
        """The processes of Ray of these kinds, or of all, on the first machines."""
        found = [node.all_processes for node in self.cluster.list_all_nodes()[:machines]]
        return [
            each.process.pid
            for processes in found
            for kind, started in processes.items()
            if not kinds or kind in kinds
            for each in started
        ]

    def calls_ray(self) -> list[int]:
        """The process that calls Ray for this run."""
        return processes_that_call_ray(self.job.coordinator.pid)


def kill_one(run: Run) -> int:
    """Kill a server, and interrupt the run a moment later."""
    run.send(signal.SIGKILL, run.chance.choice(run.servers))
    time.sleep(run.chance.uniform(0.0, 1.0))
    return run.driver(signal.SIGINT)


def of_ray(number: signal.Signals, *kinds: str, machines: int = 2) -> Callable[[Run], int]:
    """What signals processes of Ray; see `Run.ray`."""

    def act(run: Run) -> int:
        run.send(number, *run.ray(*kinds, machines=machines))
        return run.job.finish()

    return act


def stop_job(run: Run) -> int:
    """Signal the driver and the processes that it has started, as `ray job stop` does."""
    run.send(signal.SIGTERM, *run.calls_ray())
    return run.driver(signal.SIGTERM)


def kill_caller(run: Run) -> int:
    run.send(signal.SIGKILL, *run.calls_ray())
    return run.job.finish()


def kill_servers(run: Run) -> int:
    """Kill all servers; if the driver had a copy of their model, it trains on with new ones."""
    run.send(signal.SIGKILL, *(killed := run.servers))
    wait_for(
        lambda: run.job.coordinator.poll() is not None or len(run.servers) > len(killed),
        "the run ends, or new servers join",
    )
    return run.driver(signal.SIGINT)


ANYWHERE: dict[str, tuple[Callable[[Run], int], set[int]]] = {
    "interrupt": (lambda run: run.driver(signal.SIGINT), {ENDED}),
    "SIGTERM": (lambda run: run.driver(signal.SIGTERM), {ENDED}),
    "kill the driver": (lambda run: run.driver(signal.SIGKILL), {KILLED}),
    "kill a server, then interrupt": (kill_one, {ENDED}),
    "kill all servers": (kill_servers, {FAILED, ENDED}),
}
OF_RAY: dict[str, tuple[Callable[[Run], int], set[int]]] = {
    "kill the raylet of the driver": (of_ray(signal.SIGKILL, "raylet", machines=1), {FAILED}),
    "kill both raylets": (of_ray(signal.SIGKILL, "raylet"), {FAILED}),
    "kill Ray on the machine of the driver": (of_ray(signal.SIGKILL, machines=1), {FAILED}),
    "kill Ray": (of_ray(signal.SIGKILL), {FAILED}),
    "stop Ray": (of_ray(signal.SIGTERM), {FAILED}),
    "stop the job": (stop_job, {ENDED}),
    "kill the process that calls Ray": (kill_caller, {FAILED}),
}


def end_once(kind: str, chance: random.Random) -> Iterator[str]:
    """Start a run and end it in a random way; yield what was done, then each fault."""
    endings = ANYWHERE if kind == "local" else {**ANYWHERE, **OF_RAY}
    name = chance.choice(list(endings))
    act, expected = endings[name]
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        temporary_files_in(Path(folder)),
        nullcontext() if kind == "local" else two_machines() as cluster,
    ):
        run = Run(Path(folder), chance, cluster)
        try:
            began = time.monotonic()
            code = act(run)
            said = run.job.said(run.job.coordinator).splitlines()
            seconds = time.monotonic() - began
            yield f"{name}: exit code {code} after {seconds:.1f} s; {said[-1] if said else ''}"
            if code not in expected:
                yield f"exit code {code}, expected {expected}"
            if code != KILLED:
                yield from faults_of_output(said)
            yield from faults_of_files(run, code)
            wait_for_end(run, Path(folder))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            yield str(error)
        finally:
            run.job.close()


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Let this process, and those that it starts, create temporary files there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


def faults_of_output(said: list[str]) -> Iterator[str]:
    if not said or not said[-1].startswith("hogbatch: "):
        yield f"the last line is no sentence of hogbatch: {said[-1:]}"
    if len(said) > LINES:
        yield f"{len(said)} lines of errors"


def faults_of_files(run: Run, code: int) -> Iterator[str]:
    """A run whose driver was not killed has a model; it has a checkpoint from its first copy on."""
    if not run.job.events(CheckpointWritten):
        return
    if not list((run.job.run_dir / "checkpoints").glob("[0-9]*")):
        yield "no checkpoint"
    path = run.job.run_dir / "model.safetensors"
    if code == KILLED:
        return
    if not path.exists():
        yield "no model"
    elif not all(np.isfinite(each).all() for each in load_file(path).values()):
        yield "the model is not finite"


def wait_for_end(run: Run, folder: Path) -> None:
    """The processes end, and the next start removes the directories of those that were killed."""
    wait_for(lambda: not run.job.processes() and not run.calls_ray(), "the driver's processes end")
    wait_for(
        lambda: not any(b"hogbatch.cluster.server" in command_line(pid) for pid in run.servers),
        "the servers end",
    )

    def left() -> list[Path]:
        TemporaryDirectory().close()
        return list(folder.glob(f"{PREFIX}*"))

    wait_for(lambda: not left(), "no temporary directory is left")


def end_runs(kind: str, times: int, seed: int) -> list[str]:
    """End `times` runs; return the faults."""
    chance = random.Random(seed)
    faults = []
    for number in range(times):
        done, *found = end_once(kind, chance)
        print(f"{number + 1:3} {done}", flush=True)
        faults += [f"{number + 1} ({done}): {each}" for each in found]
    return faults
