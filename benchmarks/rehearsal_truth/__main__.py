"""Do rehearsals of this machine need the same rows and seconds as its real runs?

Trains each data set to a target on this machine (`hogbatch train`), and rehearses the same run with
the same flags and seed on the description of this machine (`hogbatch rehearse`). Real runs and
rehearsals alternate, one at a time. The description is measured first by `hogbatch profile`, unless
--server names one.

    scripts/bench rehearsal_truth --data DIR --out results/truth --seeds 5 --budget 3000

Prints medians over the seeds of rows and training seconds to the target (interpolated between
evaluations), ratios, and whether rows are within 15 % and seconds within 20 %. `cpu:16` on fewer
cores is compared, but may differ. The speed is rehearsed rows per real second over the rows/s of
one real core, both without evaluations; it must be at least 0.5.

Each run is one file in OUT/runs, so that the same command continues where it stopped. Nothing else
should run on the machine. OUT/truth.json and OUT/truth.md contain the comparison.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, hogbatch_run, machine, page, report
from benchmarks.common.data_sets import FILES
from benchmarks.common.result_store import ResultStore
from benchmarks.common.source_key import files_key, source_key
from benchmarks.rehearsal_truth.runs import (
    EXAMPLE,
    MODES,
    PROGRAMS,
    SETS,
    WORKERS,
    Programs,
    TruthRun,
)
from benchmarks.rehearsal_truth.speed import SpeedRun
from benchmarks.rehearsal_truth.table import comparisons, differences, slow, speed_table, table
from hogbatch.errors import INTERRUPTED, UsageError
from hogbatch.servers.description import read_server
from hogbatch.servers.toml_text import to_toml

Json = dict[str, Any]
LARGE_SERVER = "h100-16cores"


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("rehearsal_truth", __doc__)
    whole, number = arguments.positive(int), arguments.positive(float)
    default = [name for name in SETS if name != EXAMPLE]
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help=f"data sets: {FILES}")
    add("--out", type=Path, required=True, metavar="DIR", help="directory of the results")
    add("--server", metavar="FILE", help="description of this machine (default: measured)")
    add("--sets", type=arguments.names(SETS), default=default, help=", ".join(SETS))
    add(
        "--workers",
        type=lambda text: text.split("/"),
        default=list(WORKERS),
        metavar="LIST/LIST",
        help=f"values of --workers, separated by / (default: {'/'.join(WORKERS)})",
    )
    add("--seeds", type=whole, default=5, help="number of seeds (default: 5)")
    add("--budget", type=number, default=float("inf"), metavar="SECONDS", help="time for new runs")
    add("--no-speed", action="store_true", help="do not measure the speed of rehearsals")
    add("--page", type=Path, metavar="FILE", help="Markdown page to write the table into")
    return parser.parse_args(flags)


def described_machine(given: argparse.Namespace) -> str:
    """The path of the description of this machine, measured if there is none yet.

    It has its own name for each machine and each version of what measures it and reads it.
    UsageError if the measurement fails.
    """
    if given.server:
        return str(given.server)
    path = given.out / f"server-{description_key()}.toml"
    if not path.exists():
        print(f"measuring this machine: {path}", flush=True)
        command = [*hogbatch_run.PROGRAM, "profile", "--output", str(path)]
        if code := subprocess.run(command).returncode:
            raise UsageError(f"`hogbatch profile` failed with exit code {code}; give --server FILE")
    return str(path)


def description_key() -> str:
    """A key of this machine and of the sources that describe it."""
    cores = len(os.sched_getaffinity(0))
    parts = [machine.cpu_model(), f"{cores}", files_key(["hogbatch/servers"])]
    return sha256("\n".join(parts).encode()).hexdigest()[:12]


def pairs(given: argparse.Namespace, server: str) -> Iterator[list[TruthRun]]:
    """Pairs of a real run and its rehearsal; all pairs of the first seed come first."""
    for seed, which, workers in product(range(given.seeds), given.sets, given.workers):
        yield [TruthRun(which, workers, seed, mode, server) for mode in MODES]


def speed_runs(given: argparse.Namespace, server: str) -> Iterator[list[SpeedRun]]:
    """Rehearsals whose speed is measured: of this machine, and of a larger server."""
    places = [*((server, workers) for workers in given.workers), (LARGE_SERVER, None)]
    for which, (place, workers) in product(given.sets, places):
        yield [SpeedRun(which, place, workers)]


class Measurement:
    """The results of runs, stored or new; runs that failed are repeated."""

    def __init__(self, given: argparse.Namespace, programs: Programs) -> None:
        self._data, self._programs, self._budget = given.data, programs, given.budget
        self._store, self._began = ResultStore(given.out / "runs"), time.monotonic()
        self.missing = 0

    def results(self, groups: Iterable[Sequence[TruthRun | SpeedRun]]) -> Iterator[Json]:
        """The results of the runs of all groups; no group begins after the budget."""
        for group in groups:
            stored = [self._stored(run) for run in group]
            if None in stored and time.monotonic() - self._began >= self._budget:
                self.missing += len(group)
                continue
            for run, found in zip(group, stored, strict=True):
                yield found or self._run(run)

    def _stored(self, run: TruthRun | SpeedRun) -> Json | None:
        found = self._store.load(run.name, run.settings)
        return None if found is None or found["error"] else run.refreshed(found)

    def _run(self, run: TruthRun | SpeedRun) -> Json:
        result = self._store.save(run.name, run.settings, run.run(self._data, self._programs))
        shown = {key: result[key] for key in ("rows", "seconds", "speed") if key in result}
        error = result["error"] and report.last_line(result["error"])
        print(f"{run.name}: {error or shown}", flush=True)
        return result


def write(
    given: argparse.Namespace, entries: Sequence[Json], speeds: Sequence[Json], server: str
) -> None:
    """Write truth.json and truth.md, and print the tables."""
    settings: Json = {"sources": source_key(), "server": to_toml(read_server(server))}
    settings["command"] = machine.without_directories(machine.command())
    settings["speeds"] = speeds
    report.write(given.out / "truth.json", entries, **settings)
    text = table(entries) + (f"\n\n{speed_table(speeds)}" if speeds else "")
    report.replace(given.out / "truth.md", text + "\n")
    if given.page:
        page.insert(given.page, "truth", text)
    print(text, flush=True)


def main(flags: Sequence[str] | None = None, programs: Programs = PROGRAMS) -> int:
    """Measure and compare; exit code 1 if a requirement is not met, a run failed or is missing."""
    given = parse(flags)
    try:
        if absent := [
            path
            for name in given.sets
            for path in SETS[name].case.task.files(given.data)
            if not path.exists()
        ]:
            raise UsageError(f"{absent[0]} does not exist; choose other --sets or another --data")
        given.out.mkdir(parents=True, exist_ok=True)
        server = described_machine(given)
    except UsageError as error:
        print(f"rehearsal_truth: {error}", file=sys.stderr)
        return error.exit_code
    results: list[Json] = []
    speeds: list[Json] = []
    measurement, interrupted = Measurement(given, programs), False
    try:
        for result in measurement.results(pairs(given, server)):
            results.append(result)
        for speed in measurement.results([] if given.no_speed else speed_runs(given, server)):
            speeds.append(speed)
    except KeyboardInterrupt:
        interrupted = True
    entries = comparisons(results)
    write(given, entries, speeds, server)
    found = [*differences(entries), *slow(speeds)]
    failed = [each for each in (*results, *speeds) if each["error"]]
    found += [f"{r['set']}, {r['workers']}: {report.last_line(r['error'])}" for r in failed]
    print("\n".join([*found, f"{measurement.missing} runs are missing"]), flush=True)
    if interrupted:
        return INTERRUPTED
    return 1 if found or measurement.missing else 0


if __name__ == "__main__":
    sys.exit(main())
