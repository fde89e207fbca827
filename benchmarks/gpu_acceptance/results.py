"""Runs a benchmark that writes a JSON file, and records each result as soon as it is there."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_acceptance.stage import Stage

Json = dict[str, Any]
AddResult = Callable[[Json, Json], None]  # of a result and the description in its file


def follow_results(
    stage: Stage, name: str, arguments: list[str], add: AddResult, limit_s: float
) -> None:
    """Run `python -m` with `arguments` and --json FILE; record under `name` how it ended."""
    with tempfile.TemporaryDirectory() as directory:
        results = ResultFile(Path(directory) / "out.json", add)
        command = ["-m", *arguments, "--json", str(results.path)]
        code = stage.follow_python(command, results.poll, limit_s)
    if code is None and results.count:
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
