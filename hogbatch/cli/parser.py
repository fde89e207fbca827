"""The argument parser of all commands, and the arguments that several of them have."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from hogbatch.config.arguments import ArgumentGroup
from hogbatch.config.sources import REPLACED
from hogbatch.errors import UsageError

if TYPE_CHECKING:
    from hogbatch.cluster.decisions.link import ServerLink


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


def add_link(group: ArgumentGroup) -> None:
    """Add the flags for the link between two servers."""
    group.add_argument(
        "--gbit",
        metavar="X",
        default="10",
        help="speed of a link between two servers in Gbit/s (default: %(default)s)",
    )
    group.add_argument(
        "--latency-us",
        metavar="US",
        default="50",
        help="latency of a transfer between two servers in microseconds (default: %(default)s)",
    )


def link_of(gbit: str, latency_us: str) -> "ServerLink":
    """The link that the flags describe."""
    from hogbatch.cluster.decisions.link import ServerLink

    speed, latency = positive("--gbit", gbit), positive("--latency-us", latency_us)
    return ServerLink(1e-6 * latency, 1e9 / 8 * speed)


# Numbers of flags that are not settings of a run. UsageError names the flag and the range.


def positive(flag: str, text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not 0.0 < value < float("inf"):
        raise UsageError(f"{flag}: expected a number above 0; got {text!r}")
    return value


def up_to_one(flag: str, text: str) -> float:
    """A number above 0, at most 1."""
    value = _number(text)
    if not 0.0 < value <= 1.0:
        raise UsageError(f"{flag}: expected a number above 0, at most 1; got {text!r}")
    return value


def whole(flag: str, text: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"{flag}: expected a whole number from {least} to {most}; got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
