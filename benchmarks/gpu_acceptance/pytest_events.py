"""A pytest plugin that writes one JSON line when a test starts and one when it has ended.

    python -m pytest -p benchmarks.gpu_acceptance.pytest_events --events=FILE ...

Tests that have a line in FILE already are left out, so that a run can go on after a crash. A run
stops when the device no longer works, because all later tests of that process would fail.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --events."""
    parser.addoption("--events", type=Path, required=True, help="file for the JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    """Use the recorder."""
    config.pluginmanager.register(EventFile(config.getoption("--events")))


class EventFile:
    """Appends the events of a session to its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session: pytest.Session | None = None
        self._ended: dict[str, dict[str, Any]] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, to stop it if necessary."""
        self._session = session

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the tests that were started before."""
        started = {event["name"] for event in read_events(self._path)}
        left_out = [item for item in items if item.nodeid in started]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in started]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the number of tests that are to run."""
        self._write({"event": "collected", "name": "", "tests": len(session.items)})

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        """Write that a test starts."""
        self._write({"event": "started", "name": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome: of the call, or of a setup or teardown that did not pass."""
        if report.when == "call" or report.outcome != "passed":
            text = report.longreprtext if report.failed else ""
            if report.skipped and isinstance(report.longrepr, tuple):
                text = str(report.longrepr[2])
            found = {"outcome": report.outcome, "seconds": report.duration, "message": text}
            self._ended[report.nodeid] = found

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        """Write the outcome of a test; stop after a failure that has broken the device."""
        found = self._ended.pop(nodeid, {"outcome": "passed", "seconds": 0.0, "message": ""})
        self._write({"event": "ended", "name": nodeid, **found})
        if found["outcome"] == "failed" and (reason := device_failure()) and self._session:
            self._session.shouldstop = f"the device no longer works: {reason}"

    def _write(self, event: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def device_failure() -> str:
    """Why the device of this process no longer works; empty if it does, or is not used."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return ""
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except RuntimeError as error:  # base class of CuPy's CUDARuntimeError
        return str(error)
    return ""


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events in the file, without an incomplete last line; none if it does not exist."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]
