"""Workers as child processes on this server."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.adapters import ProcessAdapter
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.events.event import WorkerGivenUp, WorkerRestarted
from hogbatch.machine.process import (
    exit_in_words,
    last_lines,
    module_command,
    start_process,
    worker_environment,
)
from hogbatch.machine.topology import Cores, show_cores
from hogbatch.run.launch.restarts import Restarts

LEAVE_WITHIN_S = 3.0
# exit codes of workers that were stopped, or that would fail in the same way again
FINAL_CODES = (0, UsageError.exit_code, ProtocolError.exit_code)


@dataclass(slots=True)
class Child:
    """One requested worker and its current process."""

    request: WorkerRequest
    run_dir: Path
    cores: Cores
    log: Path
    process: subprocess.Popen[bytes]
    restarts: Restarts = field(default_factory=Restarts)
    ended: bool = False  # and will not be restarted

    def died(self, worked: bool, now: float) -> WorkerGivenUp | None:
        """Handle the exit of its process; return WorkerGivenUp if it will not be restarted."""
        if (code := self.process.wait()) not in FINAL_CODES:
            return self.fail(worked, now)
        self.ended = True
        return self._not_restarted(exit_in_words(code)) if code else None

    def fail(self, worked: bool, now: float) -> WorkerGivenUp | None:
        """Schedule its next start; return WorkerGivenUp if there is none."""
        self.restarts.died(now, worked)
        self.ended = self.restarts.due_at is None
        return self._not_restarted(str(self.restarts)) if self.ended else None

    def start_again(self, now: float) -> WorkerRestarted | WorkerGivenUp | None:
        """Start a new process; None if that failed and will be tried again."""
        self.restarts.start()
        try:
            self.process = _run(command(self.request, self.run_dir, self.cores), self.log)
        except OSError:  # out of processes or memory
            return self.fail(worked=False, now=now)
        return WorkerRestarted(str(self.request), self.process.pid, *self.restarts.counted)

    def _not_restarted(self, why: str) -> WorkerGivenUp:
        return WorkerGivenUp(str(self.request), self.with_log(why))

    def with_log(self, why: str) -> str:
        """`why`, followed by the last lines of its log."""
        lines = last_lines(self.log)
        return "\n".join([f"{why}; {self.log} ends with:", *lines]) if lines else why


class LocalLauncher(ProcessAdapter):
    """Starts `python -m hogbatch.workers.cpu` and `gpu`, each with a log file in the run directory.

    Each gets a new interpreter instead of a fork, because neither CUDA nor OpenMP survives a fork.
    Each has its own session, so Ctrl-C reaches the coordinator only. The kernel kills a worker when
    the *thread* that started it ends, so one thread starts all of them and runs until the end.
    """

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(self, request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> None:
        """Start one worker that attaches to `run_dir`.

        Each of its threads is pinned to one of the `cores`; without cores, none is pinned.
        """
        log = run_dir / log_name(len(self._children))
        try:
            process = _run(command(request, run_dir, cores), log)
        except OSError as error:
            raise UsageError(
                f"cannot start worker {request} with log {log}: {error.strerror}"
            ) from None
        self._children.append(Child(request, run_dir, cores, log, process))

    def pids(self) -> list[int]:
        return [child.process.pid for child in self._children]

    def died(self, pid: int, worked: bool, now: float) -> WorkerGivenUp | None:
        child = self._child(pid)
        return child.died(worked, now) if child else None

    def start_due(self, now: float) -> Iterator[WorkerRestarted | WorkerGivenUp]:
        for child in self._children:
            if child.restarts.is_due(now) and (change := child.start_again(now)):
                yield change

    def all_ended(self) -> str | None:
        if not self._children or not all(child.ended for child in self._children):
            return None
        last = self._children[-1]
        ended = exit_in_words(last.process.wait())
        return last.with_log(f"all workers have exited; the last one {ended}")

    def cause_of_death(self, pid: int) -> str:
        child = self._child(pid)
        if child is None:
            return f"process {pid} exited"
        code = child.process.wait()
        hint = "out of memory? see dmesg" if code == -signal.SIGKILL else f"see {child.log.name}"
        return f"process {pid} {exit_in_words(code)} ({hint})"

    def stop(self, patience_s: float = LEAVE_WITHIN_S) -> None:
        """Wait up to `patience_s` for the workers to exit, then kill the remaining ones."""
        processes = [child.process for child in self._children]
        try:
            for patience, number in ((patience_s, signal.SIGTERM), (1.0, signal.SIGKILL)):
                deadline = time.monotonic() + patience
                for process in processes:
                    try:
                        process.wait(max(0.0, deadline - time.monotonic()))
                    except subprocess.TimeoutExpired:
                        process.send_signal(number)
        finally:  # also after another Ctrl-C, which interrupts the wait
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()

    def _child(self, pid: int) -> Child | None:
        return next((child for child in self._children if child.process.pid == pid), None)


def log_name(number: int) -> str:
    """Name of the log file of the `number`-th worker launched, from 0."""
    return f"worker-{number}.log"


def command(request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> list[str]:
    """The command line that starts the requested worker."""
    options = ["--threads", str(request.threads)]
    options += ["--cores", show_cores(cores)] if cores else []
    if request.device == "gpu":
        options = ["--device", str(request.ordinal)]
    return module_command(f"hogbatch.workers.{request.device}", os.fspath(run_dir), *options)


def _run(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a worker whose output is appended to `log`."""
    with log.open("ab") as output:
        return start_process(arguments, output, env=worker_environment())
