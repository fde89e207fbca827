"""The command line: finds the command, and turns errors into one sentence and an exit code."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from hogbatch.cli import export, models, profile, rehearse, report, simulate, status, training
from hogbatch.cli.doctor import command as doctor
from hogbatch.cli.parser import Command
from hogbatch.errors import INTERRUPTED, HogbatchError, UsageError
from hogbatch.machine.printable import printable, printable_lines
from hogbatch.machine.process import collect_rarely
from hogbatch.version import version

LESS_MEMORY: Final = "use fewer rows, a smaller network, or a machine with more memory"


COMMANDS: Final[dict[str, Command]] = {
    command.__name__: command
    for command in (
        *(training.train, training.coordinator, training.worker, status.status, status.runs),
        *(report.report, models.evaluate, models.predict, export.export, simulate.simulate),
        *(rehearse.rehearse, profile.profile, doctor.doctor),
    )
}


def _overview() -> str:
    lines = [f"  {name:12} {command.__doc__}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: hogbatch COMMAND [options]",
            "",
            "Train one model with all CPU cores and GPUs of a server at the same time.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  -h, --help   show this help message and exit",
            "  --version    show the version and exit",
            "",
            "'hogbatch COMMAND --help' lists the options of a command.",
        ]
    )


def _dispatch(arguments: Sequence[str]) -> int:
    match arguments:
        case [] | ["--help" | "-h", *_]:
            print(_overview())
            return 0
        case ["--version", *_]:
            print(f"hogbatch {version()}")
            return 0
        case [command, *rest] if command in COMMANDS:
            return COMMANDS[command](rest)
    known = ", ".join(COMMANDS)
    raise UsageError(f"unknown command {arguments[0]!r}; expected one of {known}")


def _interrupt_once(*_: object) -> NoReturn:
    """Handle the first Ctrl-C and ignore later ones, which would print a traceback at exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error is printed as one sentence on stderr."""
    if arguments is None:  # this process is that of the program
        collect_rarely()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt_once)
    # PyArrow, if it is imported, then returns the memory of large columns to Linux.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except HogbatchError as error:
        print(f"hogbatch: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except MemoryError as error:
        reason = printable(str(error)) or "an allocation failed"
        print(f"hogbatch: not enough memory ({reason}); {LESS_MEMORY}", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be closed
            print("hogbatch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
