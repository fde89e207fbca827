"""Starts the processes of a run, watches them, and breaks them as a test asks."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WITHIN_S = 60  # far more than any step takes, so that a slow machine fails no test

BELONG = (  # in a run directory
    *("model.safetensors", "summary.json", "events.jsonl", "config.toml", "worker-*.log"),
    *("run.json", "coordinator.json", "bad-leases.jsonl"),
    *("checkpoints", "checkpoints/[0-9][0-9][0-9][0-9][0-9][0-9]"),
    *(
        "[0-9][0-9][0-9][0-9][0-9][0-9]/tensors.safetensors",
        "[0-9][0-9][0-9][0-9][0-9][0-9]/manifest.json",
    ),
)


def wait_for(condition, what):
    """Return the first true value of `condition()`; fail when there is none in good time."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError(f"waited {WITHIN_S} s in vain: {what}")


def cli(*arguments, cwd=None, env=None):
    """Run one hogbatch command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hogbatch.cli", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )


class Job:
    """One run in `folder`: its coordinator, the workers attached by hand, and what they wrote."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.run_dir = self.folder / "run"
        self.started = []
        self.coordinator = None
        self.inodes = set()  # of the run's shared memory, once `note_memory` has looked

    def train(self, *arguments, **env):
        """Start `hogbatch train`, which starts its workers itself; the network is small."""
        return self._begin("train", *arguments, **env)

    def coordinate(self, *arguments, **env):
        """Start `hogbatch coordinator`, and wait until workers can attach."""
        self._begin("coordinator", *arguments, **env)
        wait_for(self.address, "the coordinator publishes its address")
        return self.coordinator

    def attach(self, kind="cpu", *arguments):
        """Start a worker by hand."""
        arguments = arguments or ("--threads", 1)
        return self._start(f"workers.{kind}", self.run_dir, *arguments)

    def _begin(self, command, *arguments, **env):
        arguments = ("--hidden", 32, *arguments, "--run-dir", self.run_dir)
        self.coordinator = self._start("hogbatch.cli", command, *arguments, **env)
        return self.coordinator

    def _start(self, module, *arguments, **env):
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

    def said(self, process):
        """What `process` has written to stderr."""
        return (self.folder / f"{self.started.index(process)}.err").read_text()

    def printed(self, process):
        """What `process` has written to stdout."""
        return (self.folder / f"{self.started.index(process)}.out").read_text()

    def address(self):
        """What coordinator.json says; None while there is no coordinator."""
        try:
            return json.loads((self.run_dir / "coordinator.json").read_text() or "null")
        except (OSError, ValueError):
            return None

    def events(self, name=None):
        """The events so far, all or those called `name`."""
        try:
            lines = (self.run_dir / "events.jsonl").read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        events = [json.loads(line) for line in lines]
        return [event for event in events if name in (None, event["event"])]

    def wait_for_event(self, name, count=1, **fields):
        """Return the `count`-th event of that name with these fields."""

        def there():
            found = [e for e in self.events(name) if fields.items() <= e.items()]
            return found[count - 1] if len(found) >= count else None

        return wait_for(there, f"{count} events {name} {fields}")

    def finish(self):
        """Wait for the end of the coordinator and of all workers; return its exit code."""
        code = self.coordinator.wait(WITHIN_S)
        for process in self.started:
            process.wait(WITHIN_S)
        return code

    def summary(self):
        return json.loads((self.run_dir / "summary.json").read_text())

    def note_memory(self):
        """Remember which shared memory the coordinator maps."""
        self.inodes = {inode for inode, name in mapped(self.coordinator.pid) if "hogbatch" in name}
        assert len(self.inodes) == 2, "the data and the shared segment"

    def processes(self):
        """Living processes whose command line names the run directory."""
        return [pid for pid in pids() if os.fsencode(self.run_dir) in command_line(pid)]

    def leftovers(self):
        """What is still there of the run and should not be, one line each."""
        left = [f"process {pid}" for pid in self.processes()]
        left += [f"socket {path}" for path in self.run_dir.iterdir() if path.is_socket()]
        left += [f"shared memory {path}" for path in Path("/dev/shm").glob("*hogbatch*")]
        for pid in pids():
            if any(inode in self.inodes for inode, _ in mapped(pid)):
                left.append(f"a mapping in process {pid}")
        return left

    def strangers(self):
        """Files in the run directory that are not for its users: temporary ones left behind."""
        paths = (path.relative_to(self.run_dir) for path in self.run_dir.rglob("*"))
        return sorted(str(path) for path in paths if not any(map(path.match, BELONG)))

    def close(self):
        """Kill whatever of this run still lives."""
        for process in self.started:
            process.kill()
            process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


def pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def command_line(pid):
    """The arguments of a process; empty if it has ended, also while nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def mapped(pid):
    """(inode, name) of every memfd that a process maps."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split(maxsplit=5) for line in lines if "memfd:" in line]
    return [(int(each[4]), each[5]) for each in fields]
