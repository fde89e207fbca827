"""`hogbatch doctor`: what this machine and this installation offer, and what to improve."""

from collections.abc import Sequence
from typing import Final

from hogbatch.cli.parser import Parser, Usage
from hogbatch.config.flags import Group

DOCTOR: Final = Usage(
    "doctor",
    "[options]",
    "Check this machine and this installation, and print what to improve.",
)


def doctor(arguments: Sequence[str]) -> int:
    """`hogbatch doctor`."""
    parser = Parser(DOCTOR)
    parser.epilog = (
        "Each check is ok, warn, or unknown (?) if something cannot be read. The exit code is 0 "
        "also if there are warnings."
    )
    output = parser.add_argument_group(Group.OUTPUT.value)
    output.add_argument(
        "--json",
        action="store_true",
        help="all checks and versions as JSON, for bug reports; without names of users",
    )
    options = parser.read(arguments)
    from hogbatch.cli.doctor.command import execute

    return execute(json=options.json)
