"""The properties of a flag: its help group, value type, help text and metavar.

Each field of :class:`hogbatch.config.train.TrainConfig` is defined by one call of
:meth:`Group.flag`, or of a method derived from it, so every flag has a place in `--help`.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from hogbatch.config.values import BOOLEAN, TEXT, ValueType

T = TypeVar("T")

NO_TEXT: Final = r"(?!)"  # a regular expression that matches nothing


class Group(StrEnum):
    """The groups of flags in `--help`, in order; the values are their headings."""

    DATA = "data"
    MODEL = "model"
    OPTIMIZATION = "optimization"
    WORKERS = "workers"
    BATCH_POLICY = "batch policy"
    GPU_MERGING = "GPU merging"
    SEVERAL_SERVERS = "several servers"
    STOPPING = "stopping and evaluation"
    CHECKPOINTS = "checkpoints"
    OUTPUT = "output"

    def flag(self, default: T, value_type: ValueType, help: str, metavar: str = "") -> T:
        """Return a dataclass field whose metadata contain its Flag, which is in this group."""
        described = Flag(self, value_type, help, metavar or value_type.metavar)
        return field(default=default, metadata={"flag": described})

    def optional(self, value_type: ValueType, help: str, metavar: str = "") -> Any:
        """The same with the default None."""
        return self.flag(None, value_type, help, metavar)

    def switch(self, help: str) -> bool:
        """The same for a flag without a value, which is off by default."""
        return self.flag(False, BOOLEAN, help)

    def choice(
        self,
        default: str,
        help: str,
        choices: tuple[str, ...],
        form: str = "",
        pattern: str = NO_TEXT,
    ) -> str:
        """The same for one of `choices`, or text that the regular expression `pattern` matches.

        `form` shows in the help and in messages how such text is written.
        """

        def accepts(name: str) -> bool:
            return name in choices or re.fullmatch(pattern, name) is not None

        shown = [*choices, form] if form else choices
        words = replace(TEXT, from_value=str)  # a number may be one of the choices
        value_type = words.where(f"one of {', '.join(shown)}", accepts, "|".join(shown))
        return self.flag(default, value_type, help)


@dataclass(frozen=True, slots=True)
class Flag:
    """The parser, the check and the help text of one setting."""

    group: Group
    value_type: ValueType
    help: str
    metavar: str


def dashed(name: str) -> str:
    """Return the name of a field as flags and TOML keys spell it."""
    return name.replace("_", "-")


def as_text(value: object) -> str:
    """Return `value` as it is written after a flag."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
