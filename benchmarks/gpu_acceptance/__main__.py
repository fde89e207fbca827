"""Does hogbatch work on this GPU, and does it reach its targets?

For a GPU that is lent for minutes: runs from a plain checkout with the packages of the machine's
own Python, without a network. Each stage is a process of its own, and writes its results after
every measurement, the most valuable ones first, so that a stage or the whole program may be killed
at any time.

    preflight   what the machine can do: copies, launches, matrix products, lost updates, ...
    tests       all tests that need a GPU
    sanitizer   compute-sanitizer on the tests of the kernels, if it is installed
    cli         hogbatch train with a GPU worker, and its death in mid-run
    step        a training step against cuBLAS and PyTorch (benchmarks.gpu_step)
    together    CPU and GPU against the better of the two (benchmarks.heterogeneous)

    python3 -m benchmarks.gpu_acceptance --out DIR
    python3 -m benchmarks.gpu_acceptance --stages step,together --budget 500 --out DIR
    python3 -m benchmarks.gpu_acceptance --stages none --out DIR    the report again
    python3 -m benchmarks.gpu_acceptance --quick --out DIR          small sizes, to test the program

DIR receives at most eight files: STAGE.json of each stage, log.txt and report.md. Results of other
stages that are there already are kept, and count in the report. Exit code 0: all is well; 1: a
measurement failed, a stage did not finish, or an acceptance figure was not reached; 2: the program
cannot run here, and says what is missing.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarks.common import arguments, report
from benchmarks.gpu_acceptance import processes, record, summary
from benchmarks.gpu_acceptance.budget import SHARES, limit
from benchmarks.gpu_acceptance.packages import advice, missing

BUDGET_S = 570.0
CANNOT_RUN = 2
DATA = (processes.ROOT / "shared" / "data", processes.ROOT.parent / "shared" / "data")


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("gpu_acceptance", __doc__)
    add = parser.add_argument
    stages = arguments.names(SHARES, none="none")
    default = next((path for path in DATA if path.is_dir()), None)
    add("--stages", type=stages, default=list(SHARES), metavar="NAMES", help="default: all")
    add(
        "--budget",
        type=arguments.positive(float),
        default=BUDGET_S,
        metavar="SECONDS",
        help=f"time for all stages (default: {BUDGET_S:g})",
    )
    add("--device", type=int, default=0, metavar="N", help="number of the GPU (default: 0)")
    add("--data", type=Path, default=default, metavar="DIR", help="directory of the data sets")
    add("--out", type=Path, required=True, metavar="DIR", help="directory for the results")
    add("--quick", action="store_true", help="small sizes, to test the program")
    return parser.parse_args(flags)


class Program:
    """The stages of one call."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._end = time.monotonic() + given.budget
        self._variables = processes.environment(given.device)
        given.out.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Run the stages; after an interruption, note the others as not started."""
        stages, reason = list(self._given.stages), "no time left"
        processes.adopt_orphans()
        with (self._given.out / "log.txt").open("ab") as log:
            while stages:
                stage = stages.pop(0)
                left_s = self._end - time.monotonic()
                seconds = limit(stage, stages, left_s) if reason == "no time left" else None
                if seconds is None:
                    record.close(self._file(stage), stage, f"not started: {reason}", 0.0)
                    continue
                try:
                    self._run(stage, seconds, log)
                except processes.Interrupted as interrupted:
                    reason = f"interrupted by {interrupted}"
                self.write_report()

    def _run(self, stage: str, seconds: float, log: IO[bytes]) -> None:
        """Run one stage, and note how it ended."""
        print(f"{stage}: at most {seconds:.0f} s", flush=True)
        log.write(f"\n{'=' * 20} {stage}\n".encode())
        log.flush()
        self._file(stage).unlink(missing_ok=True)  # of an earlier call
        settings = {
            "seconds": seconds,
            "quick": self._given.quick,
            "data": str(self._given.data.absolute()) if self._given.data else "",
        }
        module = "benchmarks.gpu_acceptance.stage"
        command = ["-m", module, stage, str(self._file(stage)), json.dumps(settings)]
        began, ended = time.monotonic(), "interrupted"
        try:
            ended = processes.run(command, seconds, log, self._variables)
        finally:
            record.close(self._file(stage), stage, ended, time.monotonic() - began)
            self._remove_temporary_files()

    def _file(self, stage: str) -> Path:
        path: Path = self._given.out.absolute() / f"{stage}.json"
        return path

    def _remove_temporary_files(self) -> None:
        """Remove what a stage left that was killed while it wrote its file."""
        for path in self._given.out.glob(".*.json.*"):
            path.unlink()

    def records(self) -> dict[str, record.Json]:
        """The records of all stages, of this call and of earlier ones."""
        found = {stage: record.read(self._file(stage)) for stage in SHARES}
        return {stage: content for stage, content in found.items() if content}

    def write_report(self) -> str:
        """Write report.md; return it."""
        text = summary.text(self.records())
        report.replace(self._given.out / "report.md", text)
        return text


def no_gpu(device: int) -> str:
    """Why the GPU cannot be used; empty if it can."""
    from hogbatch.kernels.gpu.probe import find_gpus

    found = find_gpus()
    if found.devices and device < len(found.devices):
        return ""
    return found.reason or f"there are {len(found.devices)} GPUs; expected --device below that"


def main(flags: Sequence[str] | None = None) -> int:
    """Run the stages, write and print the report; the exit code is in the module's docstring."""
    given = parse(flags)
    if given.stages and (lacking := missing(given.stages)):
        print(advice(lacking), file=sys.stderr)
        return CANNOT_RUN
    if given.stages and (reason := no_gpu(given.device)):
        print(f"gpu_acceptance: {reason}", file=sys.stderr)
        return CANNOT_RUN
    program = Program(given)
    if given.stages:
        with processes.interruptible(), suppress(processes.Interrupted):
            program.run()
    print(program.write_report(), end="", flush=True)
    return int(summary.failed(program.records()))


if __name__ == "__main__":
    sys.exit(main())
