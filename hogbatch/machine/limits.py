"""Requirements of a run besides memory: /proc, open files, address space, large files.

Checked before anything else, because a missing resource would otherwise fail in the middle of a
run, far from its cause.
"""

import os
import resource
from pathlib import Path

from hogbatch.errors import UsageError
from hogbatch.machine.budget import byte_size
from hogbatch.machine.linux import ROOT

MIN_FILES = 64  # a coordinator opens some 20, and 2 for each worker; a worker opens some 15
DEFAULT_FILES = 1024
# Bytes: half of it for the libraries. LLVM, which compiles kernels, ends the process if it gets no
# memory, so that there is no error to report.
MIN_ADDRESS_SPACE = 1 << 30


def check_limits(root: Path = ROOT) -> None:
    """Raise UsageError if a coordinator or worker cannot run on this system.

    Increases the soft limit on open files, up to the hard limit, if it is too low.
    """
    if not os.path.exists(root / "proc/self/fd"):
        raise UsageError(
            "expected /proc to be mounted, because workers connect to their coordinator through "
            "/proc/PID/fd; got no /proc/self/fd: run 'mount -t proc proc /proc', or start the "
            "container with /proc"
        )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < MIN_ADDRESS_SPACE:
        raise UsageError(
            f"expected an address space of at least {byte_size(MIN_ADDRESS_SPACE)}; got a limit of "
            f"{byte_size(space)}: raise it, as with 'ulimit -v unlimited'"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= MIN_FILES:
        return
    allowed = DEFAULT_FILES if hard == resource.RLIM_INFINITY else min(hard, DEFAULT_FILES)
    if allowed < MIN_FILES:
        raise UsageError(
            f"expected at least {MIN_FILES} open files to be allowed; got a limit of {hard}: "
            f"raise it, as with 'ulimit -n {DEFAULT_FILES}'"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def file_size_limit() -> str:
    """Return a clause with the limit on file sizes and how to change it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = "that of the file system" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
    return f"got a limit of {limit}: raise it, as with 'ulimit -f unlimited'"
