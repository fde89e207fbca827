"""Flags and argparse types that several benchmarks share."""

import argparse
from collections.abc import Callable, Collection
from math import inf
from pathlib import Path
from typing import TypeVar

T = TypeVar("T", int, float)


def parser(name: str, documentation: str | None) -> argparse.ArgumentParser:
    """A parser for `scripts/bench NAME`; --help prints the module's docstring."""
    return argparse.ArgumentParser(
        prog=f"scripts/bench {name}",
        description=documentation,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json FILE."""
    parser.add_argument("--json", type=new_file, metavar="FILE", help="output file for all results")


def new_file(text: str) -> Path:
    """An argparse type: a file in an existing directory, so that hours of results can be kept."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the directory {path.parent} does not exist")
    return path


def names(known: Collection[str], none: str | None = None) -> Callable[[str], list[str]]:
    """An argparse type: names from `known`, comma-separated; the text `none` selects none."""

    def read(text: str) -> list[str]:
        if text == none:
            return []
        found = list(dict.fromkeys(text.split(",")))
        if unknown := [name for name in found if name not in known]:
            choice = ", ".join([*known, *([none] if none else [])])
            raise argparse.ArgumentTypeError(
                f"expected names from {choice}; got {', '.join(unknown)}"
            )
        return found

    return read


def positive(kind: type[T]) -> Callable[[str], T]:
    """An argparse type: a finite number above 0."""

    def number(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < inf:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"expected a {what} above 0; got {text!r}")
        return value

    return number


def add_number(
    parser: argparse.ArgumentParser, flag: str, default: T, text: str, metavar: str | None = None
) -> None:
    """Add `flag VALUE`, a number above 0 of the type of `default`, which --help shows."""
    shown = f"{text} (default: {default:g})"
    kind = positive(type(default))
    parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=shown)


def positive_list(text: str) -> list[int]:
    """An argparse type: whole numbers above 0, comma-separated."""
    return [positive(int)(part) for part in dict.fromkeys(text.split(","))]


def gpu_or_host(text: str) -> str:
    """An argparse type: the number of a GPU, or "host"."""
    if text == "host" or text.isdecimal():
        return text
    raise argparse.ArgumentTypeError(f"expected the number of a GPU, or host; got {text!r}")
