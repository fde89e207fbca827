"""All errors that callers may catch, and the exit codes of commands that fail with them.

A message is one sentence: what was got, what was expected, where, and what to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells


class HogbatchError(Exception):
    """Base class of all errors that hogbatch raises on purpose."""

    exit_code = 1


class UsageError(HogbatchError, ValueError):
    """A flag, config key or argument is invalid."""

    exit_code = 2


class DataError(UsageError):
    """The contents of a file do not match its format."""


class PolicyError(UsageError):
    """A user's batch policy failed, or returned something other than a number of rows."""


class RunDirectoryHeld(HogbatchError):
    """Another coordinator is running in the run directory."""

    exit_code = 3


class ProtocolError(HogbatchError):
    """The other side uses a different protocol version, or rejected the connection."""

    exit_code = 4


class SaveError(HogbatchError):
    """A model or checkpoint could not be written; earlier files are intact.

    When `hogbatch.train` raises it, `run` is the finished :class:`hogbatch.Run`, so that its model
    can be saved elsewhere: ``error.run.save(path)``.
    """

    exit_code = 5
    run: Any = None


class NoWorkers(HogbatchError):
    """No worker attached in time, or none is left."""

    exit_code = 6


class DeviceError(HogbatchError):
    """A device is missing, or failed in a way that only a new process can recover from."""

    exit_code = 12


@contextmanager
def needs_package(what: str, package: str, extra: str) -> Iterator[None]:
    """Convert an ImportError to a UsageError: `what` needs `package`, which is in an `extra`."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{what} needs the package {package}, which cannot be imported ({error}): "
            f"pip install 'hogbatch[{extra}]'"
        ) from error
