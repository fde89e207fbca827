"""A coordinator and a worker, each a process of its own, that move a model back and forth.

The coordinator reads numbers of rounds from its stdin, one per line, and answers each line with the
seconds of every round, as JSON.
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

from benchmarks.common.candidates import MALLOCS
from benchmarks.planes.candidates import load
from benchmarks.planes.contract import Module, Setting, move_timed, move_whole

ANSWER_WITHIN_S = 300.0

Rounds = Callable[[int], list[float]]


@contextmanager
def pair(plane: str, count: int, setting: Setting) -> Iterator[Rounds]:
    """Start both on `count` parameters; yields a function of a number of rounds.

    It returns the seconds of the rounds; RuntimeError if one of the processes fails, whose own
    message is on stderr.
    """
    tunables = MALLOCS[setting.get("malloc", "default")]
    variables = os.environ | {"GLIBC_TUNABLES": tunables, "GRPC_VERBOSITY": "ERROR"}
    with ExitStack() as ends:
        folder = ends.enter_context(TemporaryDirectory(prefix="planes-"))

        def start(role: str) -> "subprocess.Popen[bytes]":
            arguments = [role, plane, folder, str(count), json.dumps(setting)]
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.planes.pair", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                cwd=Path(__file__).parents[2],
                env=variables,
            )
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        coordinator = start("coordinator")
        _answer(coordinator, plane)
        worker = start("worker")
        # without this, the coordinator would wait forever for a worker that has failed
        threading.Thread(target=kill_after, args=(worker, coordinator), daemon=True).start()

        def rounds(number: int) -> list[float]:
            assert coordinator.stdin
            with suppress(BrokenPipeError):  # it has exited and will not answer
                coordinator.stdin.write(b"%d\n" % number)
            seconds: list[float] = _answer(coordinator, plane)
            return seconds

        yield rounds


def kill_after(first: "subprocess.Popen[bytes]", second: "subprocess.Popen[bytes]") -> None:
    """Kill `second` as soon as `first` has exited."""
    first.wait()
    second.kill()


def _answer(coordinator: "subprocess.Popen[bytes]", plane: str) -> Any:
    assert coordinator.stdout
    ready, _, _ = select.select([coordinator.stdout], [], [], ANSWER_WITHIN_S)
    line = coordinator.stdout.readline() if ready else b""
    if not line:
        raise RuntimeError(
            f"expected an answer from plane {plane} within {ANSWER_WITHIN_S:.0f} s; got none: "
            "a process that failed has printed its error above"
        )
    return json.loads(line)


def coordinate(plane: Module, folder: Path, count: int, setting: Setting) -> None:
    """Run the coordinator."""
    coordinator = plane.CoordinatorSide(folder, count, setting)
    print(json.dumps("listening"), flush=True)
    coordinator.accept()
    random = np.random.default_rng(0)
    move_whole(coordinator, random)
    for line in sys.stdin:
        seconds = [move_timed(coordinator, random) for _ in range(int(line))]
        print(json.dumps(seconds), flush=True)


def exit_with_parent() -> None:
    """Exit as soon as the other end of stdin is closed."""
    poll = select.poll()
    poll.register(0, 0)
    poll.poll()
    os._exit(0)


def main() -> None:
    """Run one of the two roles."""
    role, plane, folder, count, setting = sys.argv[1:]
    threading.Thread(target=exit_with_parent, daemon=True).start()
    module = load(plane)
    run = module.work if role == "worker" else partial(coordinate, module)
    run(Path(folder), int(count), json.loads(setting))


if __name__ == "__main__":
    main()
