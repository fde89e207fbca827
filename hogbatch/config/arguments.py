"""The flags of :class:`TrainConfig` as arguments of an argparse parser, in groups."""

import argparse
from collections.abc import Iterable
from typing import Any, TypeAlias

from hogbatch.config.flags import Group, as_text, dashed
from hogbatch.config.train import FLAGS, TrainConfig
from hogbatch.config.values import BOOLEAN

ArgumentGroup: TypeAlias = "argparse._ArgumentGroup"  # argparse has no public name for it


def add_flags(
    parser: argparse.ArgumentParser, names: Iterable[str] = tuple(FLAGS)
) -> dict[Group, ArgumentGroup]:
    """Add the flags of the fields `names` to `parser`; return their argument groups.

    The namespace contains only the flags that are used. Their values stay text:
    :func:`hogbatch.config.sources.merge_sources` converts them, so that all errors have one form.
    """
    selected = set(names)
    groups: dict[Group, ArgumentGroup] = {}
    for group in Group:
        members = [name for name, each in FLAGS.items() if name in selected and each.group is group]
        if members:
            groups[group] = parser.add_argument_group(group.value)
        for name in members:
            settings: dict[str, Any] = {"help": _help(name), "default": argparse.SUPPRESS}
            if FLAGS[name].value_type is BOOLEAN:
                settings["action"] = argparse.BooleanOptionalAction
            else:
                settings["metavar"] = FLAGS[name].metavar
            short = ["-q"] if name == "quiet" else []
            written = (*short, f"--{dashed(name)}")
            if name == "data":
                written, settings["nargs"] = (name,), "?"
            groups[group].add_argument(*written, **settings)
    return groups


def _help(name: str) -> str:
    """Return the help text of a flag, followed by its default unless that is not informative."""
    described, default = FLAGS[name], getattr(TrainConfig(), name)
    if default is None or default is False or default == "" or "(default" in described.help:
        return described.help
    shown = "on" if default is True else as_text(default)
    return f"{described.help} (default: {shown})"
