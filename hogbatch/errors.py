"""Every error a caller may catch, and the exit code each one ends a command with.

* HogbatchError                 1   (a bug, when it is raised bare)
  + UsageError                  2   a flag, a key or an argument
    - DataError                 2   a data or model file, with file:line where there is one
    - PolicyError               2   a batch policy of the user's own
  + RunDirectoryHeld            3   another coordinator lives in the run directory
  + ProtocolError               4   coordinator and worker do not speak the same version
  + SaveError                   5   a model or checkpoint could not be written
  + NoWorkers                   6   no worker came, or all are gone
  + DeviceError                12   the GPU failed in a way that only a new process can mend

A message says what was got, what was expected, where, and what to do, in one sentence.
"""

from typing import Any

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


class HogbatchError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class UsageError(HogbatchError, ValueError):
    """A flag, config key or argument is not usable."""

    exit_code = 2


class DataError(UsageError):
    """A file does not hold what its format promises."""


class PolicyError(UsageError):
    """A user's batch policy failed, or returned what is not a number of rows."""


class RunDirectoryHeld(HogbatchError):
    """The run directory belongs to a live coordinator."""

    exit_code = 3


class ProtocolError(HogbatchError):
    """The other side speaks another protocol version, or refused this side."""

    exit_code = 4


class SaveError(HogbatchError):
    """A model or checkpoint could not be written; what was saved before is intact.

    When `hogbatch.train` raises it, `run` is the :class:`hogbatch.Run` that has ended, so that its
    model can be saved elsewhere: ``error.run.save(path)``.
    """

    exit_code = 5
    run: Any = None


class NoWorkers(HogbatchError):
    """Nobody is left to train."""

    exit_code = 6


class DeviceError(HogbatchError):
    """A device is missing, or failed in a way that only a new process can mend."""

    exit_code = 12
