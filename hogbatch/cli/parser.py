"""The argument parser of all commands, and the arguments that several of them have."""

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from hogbatch.config.arguments import ArgumentGroup
from hogbatch.config.flags import Group
from hogbatch.config.suggest import meant
from hogbatch.errors import UsageError

Command = Callable[[Sequence[str]], int]  # takes the arguments after its name; an exit code


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, so that all errors have one form.

    The name of the function `command` is that of the command, and its docstring the summary. Flags
    must not be abbreviated. The error for an unknown flag names the one that is meant.
    """

    def __init__(self, command: Command, arguments: str) -> None:
        program = f"hogbatch {command.__name__}"
        super().__init__(
            prog=program,
            usage=f"{program} {arguments}",
            description=command.__doc__,
            allow_abbrev=False,
        )

    @cached_property
    def output(self) -> ArgumentGroup:
        """The arguments about the output."""
        return self.add_argument_group(Group.OUTPUT.value)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all of `arguments`."""
        options, unknown = self.parse_known_args(arguments)
        if not unknown:
            return options
        flags = [text[2:] for text in self._option_string_actions if text.startswith("--")]
        name = unknown[0].partition("=")[0].removeprefix("--").replace("_", "-")
        nearest = meant(name, flags)
        hint = f"; the nearest flag is --{nearest}" if nearest else ""
        self.error(f"unknown argument {unknown[0]!r}{hint}")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def add_config(parser: Parser) -> None:
    """Add the flag --config."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="TOML",
        help="file with flags as keys; flags on the command line take precedence",
    )


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type for `add_argument`: a whole number from `least` to `most`."""

    def read(text: str) -> int:
        with suppress(ValueError):
            if least <= (value := int(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} to {most}; got {text!r}"
        )

    return read
