"""The argument parser of all commands."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, NoReturn

from hogbatch.config.sources import REPLACED
from hogbatch.errors import UsageError


class Usage(NamedTuple):
    """How a command is called, as its help shows it."""

    command: str
    arguments: str
    summary: str


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, so that all errors have one form.

    Flags must not be abbreviated. The error for an unknown flag names the closest existing one.
    """

    def __init__(self, usage: Usage) -> None:
        program = f"hogbatch {usage.command}"
        super().__init__(
            prog=program,
            usage=f"{program} {usage.arguments}",
            description=usage.summary,
            allow_abbrev=False,
        )

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse all of `arguments`."""
        options, unknown = self.parse_known_args(arguments)
        if not unknown:
            return options
        flags = [text for text in self._option_string_actions if text.startswith("--")]
        got = unknown[0].split("=")[0]
        replaced = REPLACED.get(got.removeprefix("--").removeprefix("no-"))
        nearest = [f"--{replaced}"] if replaced else get_close_matches(got, flags, n=1)
        hint = f"; the nearest flag is {nearest[0]}" if nearest else ""
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
