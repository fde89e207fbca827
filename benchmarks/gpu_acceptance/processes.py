"""Runs one stage in a process of its own, and ends everything that it started."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import IO

from hogbatch.machine.cachedir import private_temporary_directory

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
GONE_WITHIN_S = 10.0
CACHES = {  # variables of packages and of the driver: folder
    "HOGBATCH_CACHE": "hogbatch",
    "HYPOTHESIS_STORAGE_DIRECTORY": "hypothesis",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "cuda",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
}


class Interrupted(Exception):
    """The program was asked to end: Ctrl-C or SIGTERM."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted in this context for the first Ctrl-C or SIGTERM; ignore later ones."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signal.Signals(number).name)

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, so that `end_all` finds them.

    The workers of a run have sessions of their own.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent exits for any reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def cache_variables() -> dict[str, str]:
    """Variables with which a stage writes no files into the checkout or the user's directories.

    Its caches are kept in one temporary directory for later calls of the program. UsageError if
    that directory cannot be created, or another user may have put files there.
    """
    root = private_temporary_directory(
        f"hogbatch-acceptance-{os.geteuid()}", "set TMPDIR to another directory"
    )
    folders = {name: str(root / folder) for name, folder in CACHES.items()}
    return {"PYTHONDONTWRITEBYTECODE": "1", **folders}


def environment(device: int, defaults: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The variables of a stage: this checkout is importable anywhere, and the GPU is number 0.

    `defaults` are those that count unless they are set already.
    """
    variables = {**defaults, **os.environ, "PYTHONUNBUFFERED": "1"}
    variables["PYTHONPATH"] = python_path()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if device > 0 or visible != [""]:
        chosen = visible[device] if device < len(visible) and visible != [""] else str(device)
        variables["CUDA_VISIBLE_DEVICES"] = chosen
    return variables


def python_path() -> str:
    """PYTHONPATH with this checkout first, which need not be installed."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(map(os.path.abspath, paths)))


def run(arguments: list[str], limit_s: float, log: IO[bytes], variables: Mapping[str, str]) -> str:
    """Run Python with `arguments` in a session of its own; return how it ended.

    It and everything that it started are killed after `limit_s`, and if Interrupted is raised.
    """
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=end_with_parent,
        cwd=ROOT,
        env=variables,
    )
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"killed after its limit of {limit_s:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end_all()
    if code < 0:
        return f"died by signal {-code}"
    return "finished" if code in (0, 1) else f"exit code {code}"


def end_all() -> None:
    """Kill all descendants of this process, and wait until there are none."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (alive := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """The pids of the children of a process, of their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{entry}/stat").read_text()
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry))
    pids, left = list[int](), children.get(pid, [])
    while left:
        pids += left
        left = [child for parent in left for child in children.get(parent, [])]
    return pids
