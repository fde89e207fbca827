"""A server in a process of its own that merges over NIXL; driven by lines of JSON.

Run as ``python -m tests.support.nixl_server NUMBER SIZE``. Each line on stdin is [command,
arguments...], each answer on stdout one line of JSON. `Server` is the other end.
"""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.model_merges import ChangeExchange
from hogbatch.cluster.planes.base import PlaneError
from hogbatch.cluster.planes.nixl import NixlPlane
from tests.support.merging_servers import reduction

ROOT = Path(__file__).parents[2]
PATIENCE_S = WITHIN_S / 2  # of a server, with those that live


def change_of(number, size):
    """The change of one server, float32[size]."""
    return np.random.default_rng(number).standard_normal(size).astype(np.float32)


class Server:
    """The process of one server, as the test sees it."""

    def __init__(self, number, size, variables):
        self.number = number
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nixl_server", str(number), str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
            env=os.environ | variables,
        )

    def start(self, *command):
        """Send a command; `answer` waits for its end."""
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def answer(self):
        """The answer to the last command; None if the process has ended."""
        ready, _, _ = select.select([self.process.stdout], [], [], WITHIN_S)
        assert ready, f"server {self.number} did not answer"
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, *command):
        """Send a command and wait for its answer."""
        self.start(*command)
        return self.answer()

    def end(self):
        """Kill the process; what it has written to stderr, and to stdout besides answers."""
        self.process.kill()
        out, err = self.process.communicate()
        return out + err


class Commands:
    """The commands of the process."""

    def __init__(self, number, size):
        self.number = number
        self.buffers = ExchangeBuffers.create(size)
        self.buffers.change[:] = change_of(number, size)
        self.plane = NixlPlane(self.buffers)
        self.exchange = ChangeExchange(self.buffers, self.plane, number)
        self.wait_for_others(PATIENCE_S)

    def wait_for_others(self, seconds):
        """Wait at most so long for an answer of another server from now on."""
        self.plane.timeout_s = self.exchange.timeout_s = seconds
        return seconds

    def address(self):
        return self.plane.address.hex()

    def connect(self, others):
        self.plane.connect(
            {int(number): bytes.fromhex(address) for number, address in others.items()}
        )
        return "connected"

    def reduce(self, merge, attempt, numbers):
        """The hash of the sum, or the number of the server that failed."""
        message = reduction(numbers, merge=merge, attempt=attempt)
        try:
            self.exchange.reduce(message, threading.Event())
        except PlaneError as error:
            return {"failed": error.server}
        return {"hash": hashlib.sha256(self.buffers.sum).hexdigest()}

    def error(self, expected):
        """The largest difference between the sum and that of the changes of `expected`."""
        total = sum(change_of(number, len(self.buffers.sum)) for number in expected)
        return float(np.abs(self.buffers.sum - total).max())

    def die_in_write(self, count):
        """The process will kill itself instead of its `count`-th write."""
        start, calls = self.plane.start, iter(range(1, 1 << 30))

        def start_or_die(*arguments):
            if next(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            start(*arguments)

        self.plane.start = start_or_die
        return "armed"

    def serve(self, seconds):
        """Let others write, for at most `seconds` or until a note arrives; the notes."""
        found, wake = [], threading.Event()
        for _ in range(int(seconds * 1000)):
            found += [note.decode() for _, note in self.plane.notes()]
            if found or wake.wait(0.001):
                break
        return found

    def write(self, to, note):
        """Write the own change over the merged model of another server."""
        start = self.buffers.offset("change")
        target = self.buffers.offset("merged")
        try:
            source = (start, start + self.buffers.change.nbytes)
            self.plane.start(to, source, target, note.encode())
            self.plane.finish()
        except PlaneError as error:
            return {"failed": error.server}
        return "written"

    def digest(self):
        return hashlib.sha256(self.buffers.merged).hexdigest()

    def modules(self):
        """Whether PyTorch was imported."""
        return "torch" in sys.modules


def main():
    commands = Commands(int(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(commands, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
