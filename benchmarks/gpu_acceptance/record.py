"""The record of one stage: a JSON file that is complete after every measurement."""

import json
import math
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.common import machine, report
from hogbatch.machine.linux import nvidia_driver, nvidia_gpus

T = TypeVar("T")
Json = dict[str, Any]

PACKAGES = (
    *("msgspec", "pyzmq", "safetensors", "cuda-pathfinder"),
    *("cupy-cuda12x", "cupy-cuda13x", "torch", "scipy", "pytest", "hypothesis"),
)


class Unfinished(Exception):
    """A measurement had too little time to finish."""


class Failure(Exception):
    """A measurement failed; `value` contains details for diagnosis."""

    def __init__(self, message: str, value: Json) -> None:
        super().__init__(message)
        self.value = value


class Record:
    """Writes {"stage", "about", "measurements", "ended"} by rename after each measurement.

    A measurement has a "name" and a "value", an "error", or the reason why it was "skipped".
    """

    def __init__(self, path: Path, stage: str, about: Json | None = None) -> None:
        self._path = path
        self.content: Json = {
            "stage": stage,
            "about": about or {},
            "measurements": [],
            "ended": None,
        }
        self._began = time.monotonic()
        self._write()

    def add(self, name: str, value: Any) -> None:
        """Record a measured value."""
        self._append({"name": name, "value": value})

    def fail(self, name: str, error: str, value: Any = None) -> None:
        """Record an error, and the values measured before it."""
        self._append({"name": name, "error": error} | ({} if value is None else {"value": value}))

    def skip(self, name: str, reason: str) -> None:
        """Record why something was not measured."""
        self._append({"name": name, "skipped": reason})

    def measure(self, name: str, work: Callable[[], T]) -> T | None:
        """Record the result of `work`, or its exception; return the result, None without one.

        Work without a result records what it measures itself.
        """
        try:
            value = work()
        except Unfinished as unfinished:
            self.skip(name, str(unfinished))
            return None
        except Failure as failure:
            self.fail(name, str(failure), failure.value)
            return None
        except Exception as error:
            self.fail(name, one_line(error))
            traceback.print_exc()
            return None
        if value is not None:
            self.add(name, value)
        return value

    @property
    def failed(self) -> bool:
        """Whether any measurement has an error."""
        return any("error" in each for each in self.content["measurements"])

    def _append(self, measurement: Json) -> None:
        seconds = round(time.monotonic() - self._began, 3)
        self.content["measurements"].append({**measurement, "at": seconds})
        shown = next(v for k, v in measurement.items() if k in ("error", "skipped", "value"))
        print(f"{seconds:8.1f} s  {measurement['name']}: {clipped(str(shown))}", flush=True)
        self._write()

    def _write(self) -> None:
        report.replace(self._path, as_json(self.content))


def as_json(content: Json) -> str:
    """`content` as strict JSON: numbers that are not finite become null."""
    return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read(path: Path) -> Json | None:
    """The record in the file; None if there is none."""
    if not path.exists():
        return None
    content: Json = json.loads(path.read_text(encoding="utf-8"))
    return content


def close(path: Path, stage: str, ended: str, seconds: float) -> Json:
    """Note how the stage ended in its file, which is created if the stage did not; return it."""
    content = read(path) or {"stage": stage, "about": {}, "measurements": []}
    content["ended"] = {"how": ended, "seconds": round(seconds, 1)}
    report.replace(path, as_json(content))
    return content


def describe(settings: Json) -> Json:
    """Date, hardware, versions and command."""
    found = {"gpus": nvidia_gpus(), "driver": nvidia_driver(), "settings": settings}
    return machine.describe(*PACKAGES) | found


def one_line(error: BaseException) -> str:
    """The exception's type and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def clipped(text: str, length: int = 160) -> str:
    """At most that many characters of the text."""
    return text if len(text) <= length else text[: length - 3] + "..."
