"""Does hogbatch work on this GPU, and does it reach its targets?

For a GPU that is available for a few minutes: runs from a plain checkout with the packages of the
machine's own Python, without a network. Each stage runs in a separate process. It measures the most
important things first and writes its results after every measurement, so the program can be killed
at any time.

    preflight   what the machine can do: copies, launches, matrix products, lost updates, ...
    tests       all tests that need a GPU
    sanitizer   compute-sanitizer on the tests of the kernels, if it is installed
    cli         hogbatch train with a GPU worker, and recovery after that worker is killed
    step        a training step against cuBLASLt and PyTorch (benchmarks.gpu_step)
    together    CPU and GPU against the better of the two (benchmarks.heterogeneous)

In parts, one after the other, the most valuable first:

    python3 -m benchmarks.gpu_acceptance --stages preflight,tests,sanitizer --budget 240 --out DIR
    python3 -m benchmarks.gpu_acceptance --stages cli,step --budget 240 --out DIR
    python3 -m benchmarks.gpu_acceptance --stages together --budget 480 --out DIR

    python3 -m benchmarks.gpu_acceptance --stages none --out DIR    the report again
    python3 -m benchmarks.gpu_acceptance --quick --out DIR          small sizes, to test the program

DIR receives at most eight files: STAGE.json of each stage, log.txt and report.md. Results of other
stages that are there already are kept, and count in the report. Exit code 0: nothing failed, but
targets may be unknown; 1: a measurement failed, a stage did not finish, or a target was not
reached; 2: the program cannot run here, and says what is missing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarks.common import arguments, report
from benchmarks.gpu_acceptance import processes, record, summary
from benchmarks.gpu_acceptance.budget import SHARES, limit
from benchmarks.gpu_acceptance.packages import advice, missing
from hogbatch.errors import UsageError

BUDGET_S = 570.0
PROBE_S = 60.0  # for the first initialization of CUDA
DATA = (processes.ROOT / "shared" / "data", processes.ROOT.parent / "shared" / "data")


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("gpu_acceptance", __doc__)
    parser.prog = "python3 -m benchmarks.gpu_acceptance"  # scripts/bench installs packages
    add = parser.add_argument
    stages = arguments.names(SHARES, none="none")
    default = next((path for path in DATA if path.is_dir()), None)
    add("--stages", type=stages, default=list(SHARES), metavar="NAMES", help="default: all")
    arguments.add_number(parser, "--budget", BUDGET_S, "time for the whole program", "SECONDS")
    add("--device", type=int, default=0, metavar="N", help="number of the GPU (default: 0)")
    add("--data", type=Path, default=default, metavar="DIR", help="directory of the data sets")
    add("--out", type=Path, required=True, metavar="DIR", help="directory for the results")
    add("--quick", action="store_true", help="small sizes, to test the program")
    return parser.parse_args(flags)


class Program:
    """The stages of one call."""

    def __init__(self, options: argparse.Namespace, began: float) -> None:
        """`began`: time.monotonic() at the start of the budget."""
        self._options = options
        self._end = began + options.budget
        options.out.mkdir(parents=True, exist_ok=True)

    def run(self, variables: Mapping[str, str]) -> None:
        """Run the stages with these variables of the environment.

        After an interruption, note the others as not started.
        """
        stages, reason = list(self._options.stages), "no time left"
        processes.adopt_orphans()
        with (self._options.out / "log.txt").open("ab") as log:
            while stages:
                stage = stages.pop(0)
                left_s = self._end - time.monotonic()
                seconds = limit(stage, stages, left_s) if reason == "no time left" else None
                if seconds is None:
                    record.close(self._file(stage), stage, f"not started: {reason}", 0.0)
                    continue
                try:
                    self._run(stage, seconds, log, variables)
                except processes.Interrupted as interrupted:
                    reason = f"interrupted by {interrupted}"
                self.write_report()

    def _run(
        self, stage: str, seconds: float, log: IO[bytes], variables: Mapping[str, str]
    ) -> None:
        """Run one stage, and note how it ended."""
        print(f"{stage}: at most {seconds:.0f} s", flush=True)
        log.write(f"\n{'=' * 20} {stage}\n".encode())
        log.flush()
        self._file(stage).unlink(missing_ok=True)  # of an earlier call
        settings = {
            "seconds": seconds,
            "quick": self._options.quick,
            "data": str(self._options.data.absolute()) if self._options.data else "",
        }
        module = "benchmarks.gpu_acceptance.stage"
        command = ["-m", module, stage, str(self._file(stage)), json.dumps(settings)]
        began, ended = time.monotonic(), "interrupted"
        try:
            ended = processes.run(command, seconds, log, variables)
        finally:
            record.close(self._file(stage), stage, ended, time.monotonic() - began)
            self._remove_temporary_files()

    def _file(self, stage: str) -> Path:
        path: Path = self._options.out.absolute() / f"{stage}.json"
        return path

    def _remove_temporary_files(self) -> None:
        """Remove what a stage left that was killed while it wrote its file."""
        for path in self._options.out.glob(".*.json.*"):
            path.unlink()

    def records(self) -> dict[str, record.Json]:
        """The records of all stages, of this call and of earlier ones."""
        found = {stage: record.read(self._file(stage)) for stage in SHARES}
        return {stage: content for stage, content in found.items() if content}

    def write_report(self) -> str:
        """Write report.md; return it."""
        text = summary.text(self.records())
        report.replace(self._options.out / "report.md", text)
        return text


def no_gpu(device: int) -> str | None:
    """Why the GPU cannot be used; None if it can."""
    from hogbatch.kernels.gpu.probe import find_gpus

    gpus = find_gpus(PROBE_S)
    count = len(gpus.devices)
    if 0 <= device < count:
        return None
    there = f"there is {count} (0)" if count == 1 else f"there are {count} (0 to {count - 1})"
    return f"--device {device}: no such GPU; {there}" if count else gpus.reason


def settle(options: argparse.Namespace) -> dict[str, str]:
    """The variables for the stages; UsageError if something is missing that they need."""
    if options.data and not options.data.is_dir():
        raise UsageError(f"--data {options.data}: no such directory")
    if lacking := missing(options.stages):
        raise UsageError(advice(lacking))
    os.environ["PYTHONPATH"] = processes.python_path()  # of the process that looks for GPUs
    if reason := no_gpu(options.device):
        raise UsageError(reason)
    return processes.environment(options.device, processes.cache_variables())


def warning(options: argparse.Namespace) -> str:
    """What the stages leave out without the data sets; empty if nothing."""
    if options.data or options.quick or not {"cli", "together"} & {*options.stages}:
        return ""
    return (
        "gpu_acceptance: no data sets found: stage together measures nothing, "
        "and stage cli uses only the bundled sample\n"
    )


def main(flags: Sequence[str] | None = None) -> int:
    """Run the stages, write and print the report; the exit code is in the module's docstring."""
    began = time.monotonic()
    options = parse(flags)
    try:
        variables = settle(options) if options.stages else {}
    except UsageError as error:
        print(f"gpu_acceptance: {error}", file=sys.stderr)
        return error.exit_code
    program = Program(options, began)
    if options.stages:
        print(warning(options), end="", file=sys.stderr, flush=True)
        with processes.interruptible(), suppress(processes.Interrupted):
            program.run(variables)
    print(program.write_report(), end="", flush=True)
    return int(summary.failed(program.records()))


if __name__ == "__main__":
    sys.exit(main())
