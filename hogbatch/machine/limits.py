"""What a run needs of the system besides memory: /proc, open files, files of some size.

Asked for before anything else, for what is missing would otherwise show up in the middle of a run,
far from its cause.
"""

import errno
import os
import resource
from pathlib import Path

from hogbatch.errors import UsageError
from hogbatch.machine.linux import ROOT

FEWEST_FILES = 64  # a coordinator opens some 20, and 2 for each worker; a worker opens some 15
USUAL_FILES = 1024


def check_limits(root: Path = ROOT) -> None:
    """UsageError if a coordinator or worker cannot run here, with what it takes.

    Raises the soft limit on open files to the hard one where it is too low.
    """
    if not os.path.exists(root / "proc/self/fd"):
        raise UsageError(
            "expected /proc to be mounted, for workers reach their coordinator through "
            "/proc/PID/fd; got no /proc/self/fd: run 'mount -t proc proc /proc', or start the "
            "container with /proc"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES:
        return
    most = USUAL_FILES if hard == resource.RLIM_INFINITY else min(hard, USUAL_FILES)
    if most < FEWEST_FILES:
        raise UsageError(
            f"expected at least {FEWEST_FILES} open files to be allowed; got a limit of {hard}: "
            f"raise it, as with 'ulimit -n {USUAL_FILES}'"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def explain_limit(error: OSError) -> str:
    """What to do about an `error` that a limit of this process has caused; empty for others."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"too many open files, of which {soft} are allowed: raise the limit, as with "
            f"'ulimit -n {USUAL_FILES}'"
        )
    if error.errno == errno.EFBIG:
        return f"{error.filename or 'a file'} became too large; {file_size_limit()}"
    return ""


def file_size_limit() -> str:
    """The limit on the size of files, and how to change it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = "that of the file system" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
    return f"got a limit of {limit}: raise it, as with 'ulimit -f unlimited'"
