"""Workers as child processes on this server."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hogbatch.coordinator.loop import Restart
from hogbatch.errors import DeviceError
from hogbatch.machine.topology import Cores, show_cores
from hogbatch.values import WorkerRequest

LEAVE_WITHIN_S = 3.0
LAST_LINES = 20
MOST_RESTARTS = 3  # of a worker whose device fails; then the device is left alone


@dataclass(slots=True)
class Child:
    """One worker that was asked for, in the process that it has now."""

    request: WorkerRequest
    run_dir: Path
    cores: Cores
    log: Path
    process: subprocess.Popen[bytes]
    restarts: int = 0

    @property
    def ended(self) -> bool:
        """Whether its process has."""
        return self.process.poll() is not None

    @property
    def starts_again(self) -> bool:
        """Whether its process has ended in a way that a new one may mend."""
        failed = self.ended and self.process.returncode == DeviceError.exit_code
        return failed and self.restarts < MOST_RESTARTS


class LocalLauncher:
    """Starts `python -m workers.cpu` and `workers.gpu`, each with a log file in the run directory.

    A fresh interpreter each, never a fork: neither CUDA nor OpenMP survives one. A session of its
    own keeps Ctrl-C away from them; that is the coordinator's business.
    """

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(self, request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> None:
        log = run_dir / f"worker-{len(self._children)}.log"
        process = _run(command(request, run_dir, cores), log)
        self._children.append(Child(request, run_dir, cores, log, process))

    def pids(self) -> list[int]:
        return [child.process.pid for child in self._children]

    def restart(self, pid: int) -> Restart | None:
        for child in self._children:
            if child.process.pid == pid and child.starts_again:
                return self._restart(child)
        return None

    def _restart(self, child: Child) -> Restart | None:
        child.restarts += 1
        try:
            child.process = _run(command(child.request, child.run_dir, child.cores), child.log)
        except OSError:  # no process, no memory: the run goes on with the others
            child.restarts = MOST_RESTARTS
            return None
        return Restart(str(child.request), child.process.pid, child.restarts, MOST_RESTARTS)

    def all_ended(self) -> str | None:
        gone = [child.ended and not child.starts_again for child in self._children]
        if not gone or not all(gone):
            return None
        last = self._children[-1]
        tail = "\n".join(last.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        why = f"every worker has ended; the last one {_ending(last.process)}"
        return f"{why}; {last.log} ends with:\n{tail}" if tail else why

    def cause_of_death(self, pid: int) -> str:
        for child in self._children:
            if child.process.pid == pid:
                child.process.wait()
                return f"process {pid} {_ending(child.process)}; see {child.log.name}"
        return f"process {pid} ended"

    def stop(self, patience_s: float = LEAVE_WITHIN_S) -> None:
        processes = [child.process for child in self._children]
        for patience, number in ((patience_s, signal.SIGTERM), (1.0, signal.SIGKILL)):
            deadline = time.monotonic() + patience
            for process in processes:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.send_signal(number)
        for process in processes:
            process.wait()


def command(request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> list[str]:
    """The command that starts a worker as asked for."""
    # -P: a module of the working directory must not take the place of one of ours
    module = f"workers.{request.device}"
    start = [sys.executable, "-P", "-m", module, os.fspath(run_dir), "--launched"]
    if request.device == "gpu":
        return [*start, "--device", str(request.ordinal)]
    pinned = ["--cores", show_cores(cores)] if cores else []
    return [*start, "--threads", str(request.threads), *pinned]


def _run(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process of its own session that appends what it prints to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _ending(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
