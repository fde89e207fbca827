"""Workers as child processes on this server."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hogbatch.config import WorkerRequest
from hogbatch.machine.topology import Cores, show_cores

LEAVE_WITHIN_S = 3.0
LAST_LINES = 20


class LocalLauncher:
    """Starts `python -m workers.cpu` and `workers.gpu`, each with a log file in the run directory.

    A fresh interpreter each, never a fork: neither CUDA nor OpenMP survives one. A session of its
    own keeps Ctrl-C away from them; that is the coordinator's business.
    """

    def __init__(self) -> None:
        self._children: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> None:
        log = run_dir / f"worker-{len(self._children)}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                command(request, run_dir, cores),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append((child, log))

    def all_ended(self) -> str | None:
        if not self._children or any(child.poll() is None for child, _ in self._children):
            return None
        child, log = self._children[-1]
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        why = f"every worker has ended; the last one {_ending(child)}"
        return f"{why}; {log} ends with:\n{tail}" if tail else why

    def cause_of_death(self, pid: int) -> str:
        for child, log in self._children:
            if child.pid == pid:
                child.wait()
                return f"process {pid} {_ending(child)}; see {log.name}"
        return f"process {pid} ended"

    def stop(self, patience_s: float = LEAVE_WITHIN_S) -> None:
        for patience, number in ((patience_s, signal.SIGTERM), (1.0, signal.SIGKILL)):
            deadline = time.monotonic() + patience
            for child, _ in self._children:
                try:
                    child.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.send_signal(number)
        for child, _ in self._children:
            child.wait()


def command(request: WorkerRequest, run_dir: Path, cores: Cores = ()) -> list[str]:
    """The command that starts a worker as asked for."""
    # -P: a module of the working directory must not take the place of one of ours
    module = f"workers.{request.device}"
    start = [sys.executable, "-P", "-m", module, os.fspath(run_dir), "--launched"]
    if request.device == "gpu":
        return [*start, "--device", str(request.ordinal)]
    pinned = ["--cores", show_cores(cores)] if cores else []
    return [*start, "--threads", str(request.threads), *pinned]


def _ending(child: subprocess.Popen[bytes]) -> str:
    code = child.returncode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
