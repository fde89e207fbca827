"""A tracker in a process of its own, as the run's process sees it.

Clients of servers use much of the interpreter and of the network, and their imports take seconds.
In their own process they do not slow the coordinator, and can be ended at any time.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from hogbatch.errors import HogbatchError
from hogbatch.trackers.base import Point, RunDescription, RunResult


class TrackerFailed(HogbatchError):
    """The tracker in the other process has failed; the message has no credentials."""


class RemoteTracker:
    """The tracker `name` in a process that `start` starts and `finish` or `abandon` ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned = False
        self._lock = threading.Lock()  # a process is not started after `abandon`

    def start(self, run: RunDescription) -> str:
        with self._lock:
            if self._abandoned:
                raise TrackerFailed("it was ended")
            self._process = subprocess.Popen(
                # -P: modules in the working directory must not shadow others
                [sys.executable, "-P", "-m", "hogbatch.trackers.child", self._name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the coordinator only
            )
        return self._call("start", run=asdict(run))

    def log(self, points: Sequence[Point]) -> None:
        self._call("log", points=points)

    def finish(self, result: RunResult) -> None:
        self._call("finish", result=asdict(result))
        process = self._started()
        process.communicate()  # closes its input and waits

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise TrackerFailed("it was not started")
        return self._process

    def _call(self, name: str, **arguments: Any) -> str:
        """Send a call and return the reply; TrackerFailed for errors of the tracker."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # it has failed, and its reply says why
            process.stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        reply = json.loads(line) if line else {}
        if "done" in reply:
            return str(reply["done"])
        with suppress(BrokenPipeError):  # closing it sends what could not be sent above
            process.stdin.close()
        process.stdout.close()
        code = process.wait()
        raise TrackerFailed(reply.get("error") or f"its process has ended with exit code {code}")
