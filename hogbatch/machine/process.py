"""Processes: their start and end, identity, environment of workers, pinned threads."""

import atexit
import ctypes
import gc
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from hogbatch.errors import HogbatchError
from hogbatch.machine.printable import printable_lines

ROOT = Path("/")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ORPHANED = 2  # exit code of a process whose parent ended while it started
START_FIELD = 19  # of /proc/<pid>/stat, counted from the state, which follows the name
LAST_LINES = 20  # of the log of a process that has failed, in messages
THREAD_POOLS = ("OPENBLAS", "OMP", "MKL", "BLIS", "NUMEXPR", "NUMBA")


def collect_rarely() -> None:
    """Let Python look for unreachable cycles of objects rarely, and not when this process ends.

    For processes of the program only. To import Numba and to load kernels makes a million objects
    that stay: to look for cycles among them takes 0.1 s, and 0.3 s at the end.
    """
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a worker process.

    A worker starts its own threads. Those of BLAS and OpenMP would compete with them for the cores.
    The variables must be set before NumPy is imported, so they are set for the new process.
    """
    return {**os.environ, **{f"{pool}_NUM_THREADS": "1" for pool in THREAD_POOLS}}


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module, which is told the pid of this process: `--launched`."""
    # -P: modules in the working directory must not shadow ours
    return [sys.executable, "-P", "-m", module, "--launched", str(os.getpid()), *arguments]


def start_process(command: list[str], output: IO[bytes], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process whose output goes to a file, with its own session: Ctrl-C does not reach it.

    `options` are further ones of `Popen`. OSError if it cannot be started.
    """
    options |= {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, start_new_session=True, **options)


def exit_in_words(code: int) -> str:
    """The exit of a process in words, from its `returncode`."""
    if code >= 0:
        return f"exited with code {code}"
    named = -code in set(signal.Signals)  # real-time signals have no name
    return f"was killed by {signal.Signals(-code).name if named else f'signal {-code}'}"


def last_lines(log: Path) -> list[str]:
    """The last lines of the log of a process; none if it was removed."""
    with suppress(OSError):
        return log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    return []


def exit_after(
    program: str, work: Callable[[], int | None], tell: Callable[[str], object] = str
) -> NoReturn:
    """Do the `work` of this process, then exit without waiting for threads inside kernels.

    The exit code is its result, 0 for None, or that of its error, which is printed as one of
    "hogbatch `program`"; `tell` gets the text, too, and may raise OSError.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        code = work() or 0
    except BaseException as error:
        if isinstance(error, HogbatchError):
            text, code = str(error), error.exit_code
            print(f"hogbatch {program}: {printable_lines(text)}", file=sys.stderr)
        else:
            text, code = f"{type(error).__name__}: {error}", 1
            traceback.print_exception(error)
        with suppress(OSError):
            tell(text)
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process. The same pid is given to other processes later, with another start."""

    host: str
    namespace: str  # of process ids: containers have their own
    pid: int
    start: int  # clock ticks since the machine was booted

    @classmethod
    def own(cls, root: Path = ROOT) -> Self:
        pid = os.getpid()
        return cls(os.uname().nodename, _namespace(root), pid, _start(root, pid) or 0)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self | None:
        """The identity with these fields; None if they are incomplete or of other types."""
        match fields:
            case {"host": str(host), "namespace": str(namespace), "pid": int(), "start": int()}:
                return cls(host, namespace, fields["pid"], fields["start"])
        return None

    def is_running(self, root: Path = ROOT) -> bool | None:
        """Whether the process runs; None if it cannot be seen from this machine or container."""
        if (self.host, self.namespace) != (os.uname().nodename, _namespace(root)):
            return None
        return _start(root, self.pid) == self.start


def _namespace(root: Path) -> str:
    with suppress(OSError):
        return os.readlink(root / "proc/self/ns/pid")
    return ""


def _start(root: Path, pid: int) -> int | None:
    """When process `pid` started; None if it does not exist or has ended."""
    with suppress(OSError, ValueError, IndexError):
        text = (root / f"proc/{pid}/stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()  # the name may contain spaces and parentheses
        return None if fields[0] in "ZX" else int(fields[START_FIELD])
    return None


def pin(core: int) -> None:
    """Pin this thread, and no other thread of the process, to `core`."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:  # the core has gone offline; continue without it
        logging.warning("a thread is not pinned to core %d: %s", core, error.strerror)


def pinned_cores(root: Path = ROOT) -> frozenset[int]:
    """Return the cores to each of which a thread of any user but root is pinned.

    Threads of the kernel, which belong to root, are pinned to every core.
    """
    cores: set[int] = set()
    for task in root.glob("proc/[0-9]*/task/[0-9]*"):
        with suppress(OSError):  # it has ended
            if task.stat().st_uid and len(mask := os.sched_getaffinity(int(task.name))) == 1:
                cores |= mask
    return frozenset(cores)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends.

    `parent` is the process of that thread. prctl(2), PR_SET_PDEATHSIG.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(ORPHANED)
