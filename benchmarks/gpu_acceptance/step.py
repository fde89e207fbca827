"""Stage step: benchmarks.gpu_step in each precision, the most valuable sizes first."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Stage

PRECISIONS: Final = ("float32", "tf32", "bfloat16")
PAPER: Final = "300-512x8-2,54-512x3-7"  # the networks of Ma & Rusu 2020
MARGIN_S: Final = 30.0  # for the start of gpu_step, before its --limit counts, and the last size


class Pass(NamedTuple):
    """The flags of one run of gpu_step in each precision."""

    name: str
    networks: str
    batches: str
    peers: str
    more: tuple[str, ...] = ()
    precisions: tuple[str, ...] = PRECISIONS


PASSES: Final = (
    Pass("graph", PAPER, "256,8192", "graph"),
    Pass("other sizes", PAPER, "64,1024,4096,16384,32768", "graph"),
    Pass("sparse", "300:12-512x8-2,50000:100-512-2", "256,8192", "graph"),
    Pass("eager", PAPER, "256,8192", "eager"),
    Pass("compiled", PAPER, "256,8192", "compiled"),
)
QUICK: Final = (
    Pass(
        *("graph", "54-512x3-7", "16", "graph"),
        ("--side", "64", "--rows", "64", "--seconds", "0.001", "--repetitions", "1"),
        ("tf32",),
    ),
)


def run(stage: Stage) -> None:
    """Each pass in each precision, in a process of its own."""
    for each in QUICK if stage.settings.quick else PASSES:
        for number, precision in enumerate(each.precisions):
            name = f"{each.name}, {precision}"
            if stage.left_s <= 0:
                stage.record.skip(name, "no time left")
            else:
                with stage.failures_recorded(name):
                    limit_s = stage.left_s / (len(each.precisions) - number)
                    measure(stage, each, precision, name, limit_s)


def measure(stage: Stage, each: Pass, precision: str, name: str, limit_s: float) -> None:
    """Record every result as soon as gpu_step has written it."""
    with tempfile.TemporaryDirectory() as directory:
        results = ResultFile(Path(directory) / "out.json", stage.record)
        flags = ["--networks", each.networks, "--batches", each.batches, "--peers", each.peers]
        flags += ["--precision", precision, "--limit", f"{max(1.0, limit_s - MARGIN_S):.0f}"]
        flags += ["--json", str(results.path), *each.more]
        code = stage.follow_python(["-m", "benchmarks.gpu_step", *flags], results.poll, limit_s)
    if code is None and results.count:
        stage.record.skip(name, f"no time left after {results.count} results")
    elif code is None:
        stage.record.fail(name, "timed out")
    elif code not in (0, 1):  # 1: losses differ, which the results tell
        stage.record.fail(name, f"exit code {code}; see the log")
    else:
        stage.record.add(name, {"results": results.count})


class ResultFile:
    """Transfers the results of gpu_step to the record."""

    def __init__(self, path: Path, record: Record) -> None:
        self.path, self._record = path, record
        self.count = 0

    def poll(self) -> None:
        """Record the results that are new."""
        if not self.path.exists():
            return
        content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        new = content["results"][self.count :]
        if new and self.count == 0:
            precision = new[0]["precision"]
            self._record.add(f"square product, {precision}", content["about"]["square_tflops"])
        for result in new:
            self.count += 1
            where = f"{result['network']}, {result['precision']}, {result['batch']} rows"
            wrong = [*result["mismatched"], *(f"{n} diverged" for n in result["diverged"])]
            if wrong:
                self._record.fail(where, f"losses differ: {', '.join(wrong)}", result)
            else:
                self._record.add(where, result)
