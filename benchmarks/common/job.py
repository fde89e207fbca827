"""One run in a folder of its own: starts its processes, reads its files, finds what it left behind.

For benchmarks and tests that break processes while the run is in progress.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hogbatch.events.event import Event, read_event

T = TypeVar("T")
E = TypeVar("E", bound=Event)
Process = subprocess.Popen[bytes]

WITHIN_S = 400  # far longer than any step takes, so that a loaded machine fails no test

BELONG = (  # files of a run directory that are meant for its users
    *("model.safetensors", "summary.json", "events.jsonl", "config.toml", "worker-*.log"),
    *("run.json", "coordinator.json", "bad-leases.jsonl"),
    *("checkpoints", "checkpoints/[0-9][0-9][0-9][0-9][0-9][0-9]"),
    *(
        "[0-9][0-9][0-9][0-9][0-9][0-9]/tensors.safetensors",
        "[0-9][0-9][0-9][0-9][0-9][0-9]/manifest.json",
    ),
)


def wait_for(condition: Callable[[], T], what: str, within: float = WITHIN_S) -> T:
    """The first true value of `condition()`; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError(f"timed out after {within:.0f} s waiting until {what}")


class Job:
    """One run in `folder`: its coordinator, the workers attached by hand, and their output."""

    coordinator: Any = None  # a Process, once this job has started it

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.run_dir = self.folder / "run"
        self.started: list[Process] = []
        self.inodes = set[int]()  # of the run's shared memory, once `note_memory` was called

    def train(self, *arguments: object, **env: str) -> Process:
        """Start `hogbatch train` with a small network; it starts its workers itself."""
        return self._begin("train", *arguments, **env)

    def coordinate(self, *arguments: object, **env: str) -> Process:
        """Start `hogbatch coordinator`, and wait until workers can attach, or it has ended."""
        # Workers take long to start on a loaded machine; the last value of a flag counts.
        arguments = ("--wait-for-workers", 600, *arguments)
        coordinator = self._begin("coordinator", *arguments, **env)
        wait_for(
            lambda: self.address() or coordinator.poll() is not None,
            "the coordinator publishes its address, or has ended",
        )
        return coordinator

    def attach(self, kind: str = "cpu", *arguments: object) -> Process:
        """Start a worker by hand."""
        arguments = arguments or ("--threads", 1)
        return self._start("hogbatch.cli.main", "worker", kind, self.run_dir, *arguments)

    def _begin(self, command: str, *arguments: object, **env: str) -> Process:
        # All events: single leases prove that each row was trained on once.
        flags = ("--hidden", 32, "--events", "all")
        arguments = (*flags, *arguments, "--run-dir", self.run_dir)
        process = self._start("hogbatch.cli.main", command, *arguments, **env)
        self.coordinator = process
        return process

    def _start(self, module: str, *arguments: object, **env: str) -> Process:
        number = len(self.started)
        with (
            (self.folder / f"{number}.out").open("wb") as out,
            (self.folder / f"{number}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                cwd=self.folder,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # as a shell gives each command a process group
            )
        self.started.append(process)
        return process

    def said(self, process: Process) -> str:
        """The stderr of `process` so far."""
        return (self.folder / f"{self.started.index(process)}.err").read_text()

    def printed(self, process: Process) -> str:
        """The stdout of `process` so far."""
        return (self.folder / f"{self.started.index(process)}.out").read_text()

    def address(self) -> Any:
        """The content of coordinator.json; None while no coordinator is running."""
        try:
            return json.loads((self.run_dir / "coordinator.json").read_text() or "null")
        except (OSError, ValueError):
            return None

    def events(self, kind: type[E]) -> list[E]:
        """The events of this kind so far; Event: all of them."""
        return events_in(self.run_dir, kind)

    def wait_for_event(self, kind: type[E], count: int = 1, **fields: object) -> E:
        """Wait for the `count`-th event of this kind with these fields.

        Raises AssertionError at once if the run ends without it.
        """
        wanted = f"{count} events {kind.__name__} {fields}"

        def found() -> E | None:
            # If the run has ended, the log is complete.
            code = self.coordinator.poll() if self.coordinator else None
            events = [e for e in self.events(kind) if fields.items() <= e.fields.items()]
            if len(events) >= count:
                return events[count - 1]
            if code is not None:
                said = self.said(self.coordinator)
                raise AssertionError(f"the run ended (exit code {code}) before {wanted}: {said}")
            return None

        event = wait_for(found, f"there are {wanted}")
        assert event
        return event

    def finish(self, within: float = WITHIN_S) -> int:
        """Wait `within` seconds until the coordinator and all workers have exited.

        Returns the exit code of the coordinator.
        """
        code: int = self.coordinator.wait(within)
        for process in self.started:
            process.wait(WITHIN_S)
        return code

    def summary(self) -> Any:
        """The content of summary.json."""
        return json.loads((self.run_dir / "summary.json").read_text())

    def note_memory(self) -> None:
        """Remember which shared memory segments the coordinator maps."""
        self.inodes = {inode for inode, name in mapped(self.coordinator.pid) if "hogbatch" in name}
        assert len(self.inodes) == 2, "the data and the shared segment"

    def processes(self) -> list[int]:
        """Living processes whose command line contains the run directory."""
        return [pid for pid in pids() if os.fsencode(self.run_dir) in command_line(pid)]

    def leftovers(self) -> list[str]:
        """Processes, sockets and shared memory of the run that still exist, one line each."""
        left = [f"process {pid}" for pid in self.processes()]
        left += [f"socket {path}" for path in self.run_dir.iterdir() if path.is_socket()]
        left += [f"shared memory {path}" for path in Path("/dev/shm").glob("*hogbatch*")]
        for pid in pids():
            if any(inode in self.inodes for inode, _ in mapped(pid)):
                left.append(f"a mapping in process {pid}")
        return left

    def temporary_files(self) -> list[str]:
        """Temporary files left behind in the run directory."""
        paths = (path.relative_to(self.run_dir) for path in self.run_dir.rglob("*"))
        return sorted(str(path) for path in paths if not any(map(path.match, BELONG)))

    def close(self) -> None:
        """Kill all processes of this run."""
        for process in self.started:
            process.kill()
            process.wait()
        for pid in self.processes():
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)


def events_in(run_dir: Path, kind: type[E]) -> list[E]:
    """The events of this kind in a run directory."""
    try:
        lines = (run_dir / "events.jsonl").read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    if kind is not Event:  # a wait for a rare event reads thousands of others many times
        name = f'"{kind.__struct_config__.tag}"'.encode()
        lines = [line for line in lines if name in line]
    return [event for event in map(read_event, lines) if isinstance(event, kind)]


def pids() -> list[int]:
    """All process ids of the machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def command_line(pid: int) -> bytes:
    """The arguments of a process; empty if it has exited, also before it was waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def mapped(pid: int) -> list[tuple[int, str]]:
    """(inode, name) of every memfd that a process maps."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split(maxsplit=5) for line in lines if "memfd:" in line]
    return [(int(each[4]), each[5]) for each in fields]
