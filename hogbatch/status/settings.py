"""The settings in which runs differ."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hogbatch.config.sources import DROPPED

Settings = Mapping[str, Any]  # the content of config.toml

# These do not change a run.
NOT_COMPARED: Final = ("log", "quiet", "plain", "overwrite", "run-dir", "resume", *DROPPED)


def differing(runs: Sequence[Settings]) -> list[str]:
    """The keys that do not have the same value in all runs, in the order of the settings.

    A missing key has the value None, which is a default that depends on the data or the machine.
    """
    keys = dict.fromkeys(key for settings in runs for key in settings if key not in NOT_COMPARED)
    return [key for key in keys if any(run.get(key) != runs[0].get(key) for run in runs)]


def as_flags(settings: Settings, keys: Sequence[str]) -> list[str]:
    """The settings `keys` as they are given to `hogbatch train`, without those that are missing."""
    return [_flag(key, settings[key]) for key in keys if key in settings]


def _flag(key: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{key}" if value else f"--no-{key}"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return shlex.quote(text) if key == "data" else f"--{key} {shlex.quote(text)}"
