"""Results that survive an interrupted benchmark: one JSON file each, written by rename."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.common import report

Json = dict[str, Any]
SETTINGS = "settings"  # the key under which a result contains the settings that it depends on


class ResultStore:
    """The files NAME.json of a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    def load(self, name: str, settings: Json, ignored: Collection[str] = ()) -> Json | None:
        """The result of that name; None if there is none with these settings.

        Settings whose names are in `ignored` may differ.
        """
        path = self._path(name)
        if not path.exists():
            return None
        try:
            result: Json = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return None
        same = _without(result[SETTINGS], ignored) == _without(settings, ignored)
        return result if same else None

    def all(self) -> list[Json]:
        """All results, in the order of their names."""
        return [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(self._directory.glob("*.json"))
        ]

    def save(self, name: str, settings: Json, result: Json) -> Json:
        """Write `result` with its settings; return what was written."""
        content = {SETTINGS: settings, **result}
        report.replace(self._path(name), json.dumps(content) + "\n")
        return content

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _without(settings: Json, ignored: Collection[str]) -> Json:
    """`settings` as JSON holds them, with lists in place of tuples."""
    kept: Json = json.loads(json.dumps({k: v for k, v in settings.items() if k not in ignored}))
    return kept
