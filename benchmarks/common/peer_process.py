"""A peer in a process of its own, so that the threads of two frameworks never compete.

The process reads jobs from its stdin, one per line, and writes one answer per job to its stdout;
both are JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, Self

from benchmarks.peers import peer
from benchmarks.peers.contract import Setting, Stopwatch, read_problem

ROOT = Path(__file__).parents[2]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
STARTUP_S = 120.0  # time to start and compile, in addition to ten times the training limit


def process_limit(training_s: float) -> float:
    """Seconds after which a process that trains for at most `training_s` is killed."""
    return STARTUP_S + 10 * training_s


class PeerProcess:
    """Trains one peer on the problem in `directory`, with `threads` threads."""

    def __init__(self, name: str, directory: Path, threads: int) -> None:
        self.name = name
        variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
        variables |= dict.fromkeys(THREAD_VARIABLES, str(threads))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.common.peer_process", name, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=variables,
        )

    def train(self, setting: Setting, seed: int, watch: Stopwatch) -> dict[str, Any]:
        """One run: {"curve": [[seconds, loss], ...], "rows": trained on}.

        RuntimeError if the process exits; its own message is on stderr.
        """
        job = {"setting": setting, "seed": seed, "target": watch.target}
        job |= {"limit_s": watch.limit_s, "rival": list(watch.rival)}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        guard = Timer(process_limit(watch.limit_s), self._process.kill)
        guard.daemon = True  # the end of an interrupted program does not wait for it
        guard.start()
        line = self._process.stdout.readline()
        guard.cancel()
        if not line:
            raise RuntimeError(f"the process of peer {self.name} exited while training {setting}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.kill()  # it has answered, or its answer is no longer needed
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def train_once(
    name: str, directory: Path, setting: Setting, seed: int, watch: Stopwatch
) -> dict[str, Any]:
    """One run of a peer in a process of its own; see :meth:`PeerProcess.train`."""
    with PeerProcess(name, directory, setting.get("threads", 1)) as process:
        return process.train(setting, seed, watch)


def serve(name: str, directory: Path) -> None:
    """Answer jobs until stdin is closed; the output of frameworks goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    problem = read_problem(directory)
    for line in sys.stdin:
        job = json.loads(line)
        watch = Stopwatch(job["target"], job["limit_s"], job["rival"])
        peer(name).train(problem, job["setting"], job["seed"], watch)
        answer = {"curve": rounded(watch.curve), "rows": watch.rows}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def rounded(curve: Sequence[Sequence[float]]) -> list[list[float]]:
    """`curve` in 0.1 ms and five digits of loss: enough to plot, and files stay small."""
    return [[round(seconds, 4), float(f"{loss:.5g}")] for seconds, loss in curve]


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
