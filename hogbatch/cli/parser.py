"""The argument parser of all commands, and the arguments that several of them have."""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from hogbatch.config.arguments import ArgumentGroup
from hogbatch.config.suggest import meant
from hogbatch.errors import UsageError

if TYPE_CHECKING:
    from hogbatch.cluster.decisions.link import ServerLink

T = TypeVar("T", int, float)


class Usage(NamedTuple):
    """The usage line of a command."""

    command: str
    arguments: str
    summary: str


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, so that all errors have one form.

    Flags must not be abbreviated. The error for an unknown flag names the one that is meant.
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


# Types of numbers that are not settings of a run, for `add_argument`.


def positive(text: str) -> float:
    """A finite number above 0."""
    return _number(float, text, lambda value: 0.0 < value < math.inf, "a number above 0")


def up_to_one(text: str) -> float:
    """A number above 0, at most 1."""
    return _number(float, text, lambda value: 0.0 < value <= 1.0, "a number above 0, at most 1")


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""
    expected = f"a whole number from {least} to {most}"
    return lambda text: _number(int, text, lambda value: least <= value <= most, expected)


def _number(kind: Callable[[str], T], text: str, accepts: Callable[[T], bool], expected: str) -> T:
    try:
        value = kind(text)
    except ValueError:
        pass
    else:
        if accepts(value):
            return value
    raise argparse.ArgumentTypeError(f"expected {expected}; got {text!r}")


def add_link(group: ArgumentGroup) -> None:
    """Add the flags for the link between two servers."""
    group.add_argument(
        "--gbit",
        type=positive,
        metavar="X",
        default="10",
        help="speed of a link between two servers in Gbit/s (default: %(default)s)",
    )
    group.add_argument(
        "--latency-us",
        type=positive,
        metavar="US",
        default="50",
        help="latency of a transfer between two servers in microseconds (default: %(default)s)",
    )


def link_of(gbit: float, latency_us: float) -> "ServerLink":
    """The link that the flags describe."""
    from hogbatch.cluster.decisions.link import ServerLink

    return ServerLink(1e-6 * latency_us, 1e9 / 8 * gbit)
