"""A coordinator and a worker, each a process of its own, that move a model back and forth.

The coordinator reads from its input how many rounds to make, a line at a time, and answers each
line with the seconds that every round took, in JSON.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from transports import MALLOCS, load
from transports.contract import Module, Setting, move_timed, move_whole

PATIENCE_S = 300.0  # for one answer

Rounds = Callable[[int], list[float]]


@contextmanager
def pair(plane: str, count: int, setting: Setting) -> Iterator[Rounds]:
    """Start both on `count` parameters; yields what makes so many rounds and returns the seconds.

    That raises RuntimeError when one of the processes ends; its complaint is on stderr.
    """
    tunables = MALLOCS[setting.get("malloc", "default")]
    variables = os.environ | {"GLIBC_TUNABLES": tunables, "GRPC_VERBOSITY": "ERROR"}
    with ExitStack() as ends:
        folder = ends.enter_context(TemporaryDirectory(prefix="planes-"))

        def start(role: str) -> "subprocess.Popen[bytes]":
            arguments = [role, plane, folder, str(count), json.dumps(setting)]
            process = subprocess.Popen(
                [sys.executable, "-m", "transports.pair", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                cwd=Path(__file__).parents[1],
                env=variables,
            )
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        coordinator = start("coordinator")
        _answer(coordinator, plane)
        worker = start("worker")
        # when the worker fails, the coordinator would wait for it for ever
        threading.Thread(target=lambda: (worker.wait(), coordinator.kill()), daemon=True).start()

        def rounds(number: int) -> list[float]:
            assert coordinator.stdin
            with suppress(BrokenPipeError):  # it has ended, and so will not answer
                coordinator.stdin.write(b"%d\n" % number)
            seconds: list[float] = _answer(coordinator, plane)
            return seconds

        yield rounds


def _answer(coordinator: "subprocess.Popen[bytes]", plane: str) -> Any:
    assert coordinator.stdout
    ready, _, _ = select.select([coordinator.stdout], [], [], PATIENCE_S)
    line = coordinator.stdout.readline() if ready else b""
    if not line:
        raise RuntimeError(
            f"expected an answer of plane {plane} within {PATIENCE_S:.0f} s; got none:"
            " if one of its processes has failed, it says why above"
        )
    return json.loads(line)


def coordinate(transport: Module, folder: Path, count: int, setting: Setting) -> None:
    """The coordinator's life."""
    coordinator = transport.Coordinator(folder, count, setting)
    print(json.dumps("listening"), flush=True)
    coordinator.accept()
    random = np.random.default_rng(0)
    move_whole(coordinator, random)
    for line in sys.stdin:
        seconds = [move_timed(coordinator, random) for _ in range(int(line))]
        print(json.dumps(seconds), flush=True)


def end_with_parent() -> None:
    """Leave this process as soon as nobody holds the other end of its input."""
    poll = select.poll()
    poll.register(0, 0)
    poll.poll()
    os._exit(0)


def main() -> None:
    """Be one of the two."""
    role, plane, folder, count, setting = sys.argv[1:]
    threading.Thread(target=end_with_parent, daemon=True).start()
    transport = load(plane)
    live = transport.work if role == "worker" else partial(coordinate, transport)
    live(Path(folder), int(count), json.loads(setting))


if __name__ == "__main__":
    main()
