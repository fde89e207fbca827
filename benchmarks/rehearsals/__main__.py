"""Which processors, batches and policies are fastest on which server? A matrix of rehearsals.

Rehearses (`hogbatch rehearse`) data sets on servers: the CPU alone with its default policy and with
fixed batches, the GPU alone with fixed batches, and both under `--policy hogbatch` and `--policy
adaptive`. Of the fixed batches the best is taken for each target.

    scripts/bench rehearsals --data DIR --out results/rehearsals --seeds 3 --jobs 2 --budget 3600
    scripts/bench rehearsals --quick --out /tmp/matrix

Each cell is one file in OUT/cells, written when it is done, so that the same command continues
where it stopped; cells whose settings or sources have changed run again. OUT/matrix.json,
OUT/matrix.md and OUT/figures/SET--SERVER.svg are made from all cells at the end, and by --report.

A cell ends at the late target of its set, after --within times the seconds of the best device alone
so far, or after its epochs, whichever is first. How to read the results: docs/rehearsal-matrix.md.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, machine, page, report
from benchmarks.common.data_sets import FILES
from benchmarks.common.result_store import ResultStore
from benchmarks.common.servers import Processors, all_servers
from benchmarks.common.source_key import source_key
from benchmarks.rehearsals import figures
from benchmarks.rehearsals.cell import REHEARSE, Cell, InterruptedCell
from benchmarks.rehearsals.matrix import Limits, Matrix
from benchmarks.rehearsals.methods import CPU_BATCHES, GPU_BATCHES, KINDS, methods
from benchmarks.rehearsals.schedule import as_duration, remaining_s
from benchmarks.rehearsals.sets import EXAMPLE, SETS
from benchmarks.rehearsals.table import comparisons, failures, table
from hogbatch.data import samples
from hogbatch.errors import INTERRUPTED, UsageError

Json = dict[str, Any]
QUICK_BATCHES = [256]
QUICK_SERVERS = 2


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("rehearsals", __doc__)
    whole, number = arguments.positive(int), arguments.positive(float)
    default = [name for name in SETS if name != EXAMPLE]
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="directory of the results")
    add("--data", type=Path, metavar="DIR", help=f"directory of the data sets: {FILES}")
    add("--sets", type=arguments.names(SETS), default=default, help=", ".join(SETS))
    add(
        "--servers",
        type=lambda text: text.split(","),
        help="bundled names or TOML files, comma-separated (default: all that are bundled)",
    )
    add("--methods", type=arguments.names(KINDS), default=list(KINDS), help=", ".join(KINDS))
    add("--cpu-batches", type=arguments.positive_list, default=list(CPU_BATCHES), metavar="ROWS,…")
    add("--gpu-batches", type=arguments.positive_list, default=list(GPU_BATCHES), metavar="ROWS,…")
    add("--seeds", type=whole, default=1, help="number of seeds (default: 1)")
    add("--jobs", type=whole, default=2, help="cells at the same time (default: 2)")
    add("--budget", type=number, default=float("inf"), metavar="SECONDS", help="time for new cells")
    add("--within", type=number, default=5.0, help="limit of a cell, see above (default: 5)")
    add("--cell-limit", type=number, default=1800.0, help="real seconds of a cell (default: 1800)")
    add("--retry-failed", action="store_true", help="run cells again that failed")
    add("--quick", action="store_true", help="a9a, two servers, one batch size of each device")
    add("--report", action="store_true", help="only write the reports, from cells of any sources")
    add("--page", type=Path, metavar="FILE", help="Markdown page to write the table into")
    given = parser.parse_args(flags)
    if given.quick:
        given.data, given.sets = Path(samples.__file__).parent, [EXAMPLE]
        given.cpu_batches = given.gpu_batches = QUICK_BATCHES
    if given.data is None:
        parser.error("--data is required without --quick")
    return given


def cells(given: argparse.Namespace) -> list[Cell]:
    """All cells that the flags name; UsageError for an unknown server or missing data."""
    servers = given.servers or all_servers()[: QUICK_SERVERS if given.quick else None]
    files = [path for name in given.sets for path in SETS[name].case.task.files(given.data)]
    if absent := [path for path in files if not path.exists()]:
        raise UsageError(f"{absent[0]} does not exist; choose other --sets or another --data")
    found = []
    for server in servers:
        batches = given.methods, given.cpu_batches, given.gpu_batches
        chosen = list(methods(Processors.of(server), *batches))
        sets = [name for name in given.sets if SETS[name].allows(server)]
        found += [Cell(*each) for each in product(sets, [server], chosen, range(given.seeds))]
    return found


def show(result: Json, left: str) -> None:
    """Print one cell that is done."""
    place = " ".join([result["set"], result["server"], result["method"], f"seed {result['seed']}"])
    if result["error"]:
        outcome = f"failed: {report.last_line(result['error'])}"
    else:
        reached = result["reached"]
        times = [f"{at['seconds']:.3g} s" if at else "not reached" for at in reached.values()]
        outcome = " / ".join(times)
    print(f"{place}: {outcome} [{result['wall_s']:.0f} s real; {left}]", flush=True)


def write(matrix: Matrix, given: argparse.Namespace) -> None:
    """Write matrix.json, matrix.md and the figures from the results so far."""
    results = sorted(matrix.results, key=lambda r: list(SETS).index(r["set"]))
    settings = {"within": given.within, "sources": source_key(), "cells": len(results)}
    settings["command"] = machine.without_directories(machine.command())
    report.write(given.out / "matrix.json", comparisons(results), **settings)
    text = table(results)
    if failed := failures(results):
        text += f"\n\nFailed:\n\n{failed}"
    report.replace(given.out / "matrix.md", text + "\n")
    if given.page:
        page.insert(given.page, "matrix", text)
    print(text, flush=True)
    if find_spec("matplotlib") is None:
        print("no figures: matplotlib is not installed", flush=True)
        return
    (given.out / "figures").mkdir(exist_ok=True)
    figures.draw_all(results, given.out / "figures")


def main(flags: Sequence[str] | None = None, rehearse: Sequence[str] = REHEARSE) -> int:
    """Run the cells that are missing, and report; exit code 1 if a cell failed or is missing.

    `rehearse` is the command that rehearses one cell.
    """
    given = parse(flags)
    try:
        wanted = cells(given)
    except UsageError as error:
        print(f"rehearsals: {error}", file=sys.stderr)
        return error.exit_code
    limits = Limits(
        given.within, given.jobs, given.budget, given.cell_limit, retry=given.retry_failed
    )
    matrix = Matrix(given.data, ResultStore(given.out / "cells"), limits, rehearse)
    missing = matrix.load(wanted, ["sources"] if given.report else [])
    rest = as_duration(remaining_s(matrix.results, missing, given.jobs))
    print(f"{len(wanted)} cells, {len(missing)} to run, about {rest}", flush=True)
    interrupted = False
    if not given.report:
        try:
            missing = matrix.run(missing, show)
        except (KeyboardInterrupt, InterruptedCell):
            interrupted = True
    if matrix.results:
        write(matrix, given)
    if interrupted:
        return INTERRUPTED
    failed = [result for result in matrix.results if result["error"]]
    print(f"{len(failed)} cells failed, {len(missing)} have not run", flush=True)
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
