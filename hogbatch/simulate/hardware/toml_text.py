"""The text of a description, as `hogbatch.simulate.hardware.description` reads it."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from hogbatch.simulate.hardware.description import Server


def to_toml(server: Server) -> str:
    """Return `server` as TOML."""
    text = "\n".join(_table(server, ""))
    return text.lstrip("\n") + "\n"


def _table(described: Any, prefix: str) -> list[str]:
    """The lines of a dataclass: plain values first, because tables follow them in TOML."""
    values = {each.name: getattr(described, each.name) for each in fields(described)}
    lines = [f"{name} = {_plain(value)}" for name, value in values.items() if _is_plain(value)]
    for name, value in values.items():
        key = f"{prefix}{name}"
        if is_dataclass(value):
            lines += ["", f"[{key}]", *_table(value, f"{key}.")]
        elif isinstance(value, tuple):
            for each in value:
                lines += ["", f"[[{key}]]", *_table(each, f"{key}.")]
        elif not _is_plain(value) and value:
            lines += ["", f"[{key}]", *(f"{each} = {_plain(text)}" for each, text in value.items())]
    return lines


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if "e" in f"{value:.4g}" else repr(float(f"{value:.4g}"))
    return json.dumps(value, ensure_ascii=False)
