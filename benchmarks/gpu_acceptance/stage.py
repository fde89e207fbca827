"""The process of one stage: python -m benchmarks.gpu_acceptance.stage NAME FILE SETTINGS.

The module NAME of this package has a function run(stage).
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu_acceptance.processes import adopt_orphans, end_all, end_with_parent
from benchmarks.gpu_acceptance.record import Record, describe

Json = dict[str, Any]
AddResult = Callable[[Json, Json], None]  # of a result and the description in its file

POLL_S = 0.2
START_S = 60.0  # within which a program has its first result, unless it hangs
END_S = 2.0  # a stage starts no measurement in its last END_S seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """What a stage is told."""

    seconds: float  # after which it is killed
    quick: bool = False  # small sizes, to test the program
    data: str = ""  # directory of the data sets; empty: there is none


@dataclass(slots=True)
class Stage:
    """A stage in its own process."""

    record: Record
    settings: Settings
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds until the stage should have ended."""
        return self.settings.seconds - END_S - (time.monotonic() - self.began)

    def follow(
        self,
        command: list[str],
        poll: Callable[[], object] = lambda: None,
        output: IO[str] | None = None,
        limit_s: float = math.inf,
    ) -> int | None:
        """Run a program, calling `poll` again and again, and once after its end.

        Returns its exit code, or None if it was killed: after `limit_s`, or because no time of the
        stage was left. Its output goes to `output`, or to the log.
        """
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output and subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )
        end, code = time.monotonic() + limit_s, None
        while code is None and self.left_s > 0 and time.monotonic() < end:
            code = _exit_code(process)
            poll()
        process.kill()
        process.wait()
        end_all()  # what it started, such as the workers of a run
        poll()
        return code

    def attempt(self, name: str, work: Callable[[], object], margin_s: float = 0.0) -> None:
        """Let the record measure `work`, if more than `margin_s` are left."""
        if self.left_s > margin_s:
            self.record.measure(name, work)
        else:
            self.record.skip(name, "no time left")


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return None


def follow_results(
    stage: Stage, name: str, arguments: list[str], add: AddResult, limit_s: float
) -> None:
    """Run `python -m` with `arguments` and --json FILE; record under `name` how it ended."""
    with tempfile.TemporaryDirectory() as directory:
        results = ResultFile(Path(directory) / "out.json", add)
        command = [sys.executable, "-m", *arguments, "--json", str(results.path)]
        code = stage.follow(command, results.poll, limit_s=limit_s)
    if code is None and (results.count or limit_s < START_S):
        stage.record.skip(name, f"no time left after {results.count} results")
    elif code is None:
        stage.record.fail(name, "timed out")
    elif code not in (0, 1):  # 1: some results are failures, which are recorded as such
        stage.record.fail(name, f"exit code {code}; see the log")
    else:
        stage.record.add(name, {"results": results.count})


class ResultFile:
    """Calls `add` for the results in a file, once for each."""

    def __init__(self, path: Path, add: AddResult) -> None:
        self.path, self._add = path, add
        self.count = 0

    def poll(self) -> None:
        """Add the results that are new."""
        if not self.path.exists():
            return
        content: Json = json.loads(self.path.read_text(encoding="utf-8"))
        for result in content["results"][self.count :]:
            self.count += 1
            self._add(result, content["about"])


def main(arguments: list[str]) -> int:
    """Run the stage; exit code 1 if a measurement failed."""
    name, path, text = arguments
    adopt_orphans()
    settings = Settings(**json.loads(text))
    stage = Stage(Record(Path(path), name, describe(asdict(settings))), settings)
    stage.attempt("stage", lambda: import_module(f"benchmarks.gpu_acceptance.{name}").run(stage))
    return int(stage.record.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
