"""The fastest processors, batches and policies of described servers: a matrix of rehearsals.

Rehearses (`hogbatch rehearse`) data sets on servers: the CPU alone with its default policy and with
fixed batches, the latter also with threads on their own where they compute together by default, one
GPU and all GPUs alone with fixed batches, and everything under `--policy hogbatch` and `--policy
adaptive`. Of the fixed batches three run at first, and then the neighbours of the best one; of
those that ran the best is taken for each target.

    scripts/bench rehearsals --data DIR --out results/rehearsals --seeds 3 --jobs 2 --budget 3600
    scripts/bench rehearsals --data DIR --out results/rehearsals --dry-run
    scripts/bench rehearsals --quick --out /tmp/matrix

Each cell is one file in OUT/cells, written when it is done, so that the same command continues
where it stopped; cells whose settings or sources have changed run again, with --reuse-fixed only
those of policies and of the default batches. OUT/matrix.json,
OUT/matrix.md and OUT/figures/SET--SERVER.svg are made from all cells at the end, and by --report.

A cell ends at the late target of its set, after --within times the seconds of the best device alone
so far, or after its epochs, whichever is first. How to read the results: docs/rehearsal-matrix.md.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, machine, report
from benchmarks.common.data_sets import FILES
from benchmarks.common.result_store import ResultStore
from benchmarks.common.servers import Processors, short_name
from benchmarks.rehearsals import figures
from benchmarks.rehearsals.cell import REHEARSE, InterruptedCell
from benchmarks.rehearsals.forecast import forecast
from benchmarks.rehearsals.matrix import Limits, Matrix
from benchmarks.rehearsals.methods import KINDS, ON_CPU, kinds_of
from benchmarks.rehearsals.schedule import as_duration, remaining_s
from benchmarks.rehearsals.search import Batches, Place, Search
from benchmarks.rehearsals.sets import EXAMPLE, SETS
from benchmarks.rehearsals.table import comparisons, failures, table
from benchmarks.rehearsals.useful import LEAST, cpu_batches, members_of_teams, useful_range
from hogbatch.data import samples
from hogbatch.errors import INTERRUPTED, UsageError
from hogbatch.simulate.hardware.description import bundled_names

Json = dict[str, Any]
LARGEST_CPU_BATCH = 4096
QUICK_BATCHES = [256]
QUICK_SERVERS = 2


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("rehearsals", __doc__)
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
    batches: Json = {"type": arguments.positive_list, "metavar": "ROWS,…"}
    add("--cpu-batches", **batches, help="exactly these fixed batches (default: a search)")
    add("--gpu-batches", **batches, help="exactly these fixed batches (default: a search)")
    seconds: Json = {"type": arguments.positive(float), "metavar": "SECONDS"}
    add("--budget", **seconds, default=float("inf"), help="time for new cells")
    number = partial(arguments.add_number, parser)
    number("--seeds", 1, "number of seeds")
    number("--jobs", 2, "cells at the same time")
    number("--within", 5.0, "limit of a cell, see above")
    number("--cell-limit", 1800.0, "real seconds of a cell")
    add("--retry-failed", action="store_true", help="run cells again that failed")
    add("--reuse-fixed", action="store_true", help="use cells with fixed batches of any sources")
    add("--quick", action="store_true", help="a9a, two servers, one batch size of each device")
    add("--dry-run", action="store_true", help="list cells and estimated minutes, start nothing")
    add("--report", action="store_true", help="only write the reports, from all cells in OUT")
    options = parser.parse_args(flags)
    if options.quick:
        options.data, options.sets = Path(samples.__file__).parent, [EXAMPLE]
        options.cpu_batches = options.gpu_batches = QUICK_BATCHES
    if options.data is None:
        parser.error("--data is required without --quick")
    return options


def places(options: argparse.Namespace) -> list[Place]:
    """All sets on all servers that the flags name.

    UsageError for an unknown server or missing data.
    """
    servers = options.servers or bundled_names()[: QUICK_SERVERS if options.quick else None]
    files = [path for name in options.sets for path in SETS[name].case.task.files(options.data)]
    if absent := [path for path in files if not path.exists()]:
        raise UsageError(f"{absent[0]} does not exist; choose other --sets or another --data")
    return [
        _place(options, name, server)
        for server in servers
        for name in options.sets
        if SETS[name].allows(server)
    ]


def _place(options: argparse.Namespace, set_name: str, server: str) -> Place:
    """A set on a server, with the batches that the flags give or that are worth trying there."""
    members = members_of_teams(set_name, server, options.data)
    processors = replace(Processors.of(server), members=members)
    batches = {}
    for kind in kinds_of(processors, options.methods):
        if kind in ON_CPU and options.cpu_batches:
            batches[kind] = Batches(options.cpu_batches)
        elif kind in ON_CPU:
            first = cpu_batches(members if kind == "cpu" else 1)
            batches[kind] = Batches(first, 1, LARGEST_CPU_BATCH)
        elif options.gpu_batches:
            batches[kind] = Batches(options.gpu_batches)
        else:
            useful = useful_range(set_name, server, options.data)
            batches[kind] = Batches(useful.spread(), LEAST, useful.high)
    return Place(set_name, server, processors, options.methods, batches)


def show(result: Json, left: str) -> None:
    """Print one cell that is done."""
    name = " ".join([result["set"], result["server"], result["method"], f"seed {result['seed']}"])
    if result["error"]:
        outcome = f"failed: {report.last_line(result['error'])}"
    else:
        reached = result["reached"]
        times = [f"{at['seconds']:.3g} s" if at else "not reached" for at in reached.values()]
        outcome = " / ".join(times)
    print(f"{name}: {outcome} [{result['wall_s']:.0f} s real; {left}]", flush=True)


def write(matrix: Matrix, options: argparse.Namespace) -> None:
    """Write matrix.json, matrix.md and the figures from the results so far."""
    results = sorted(matrix.results, key=lambda r: list(SETS).index(r["set"]))
    sources = sorted({result["settings"]["sources"] for result in results})
    settings = {"within": options.within, "sources": sources, "cells": len(results)}
    settings["command"] = machine.without_directories(machine.command())
    report.write(options.out / "matrix.json", comparisons(results), **settings)
    text = table(results)
    if len(sources) > 1:
        text += f"\n\nThe cells are from several versions of the sources: {', '.join(sources)}."
    if failed := failures(results):
        text += f"\n\nFailed:\n\n{failed}"
    report.replace(options.out / "matrix.md", text + "\n")
    print(text, flush=True)
    if find_spec("matplotlib") is None:
        print("no figures: matplotlib is not installed", flush=True)
        return
    (options.out / "figures").mkdir(exist_ok=True)
    figures.draw_all(results, options.out / "figures")


def main(flags: Sequence[str] | None = None, rehearse: Sequence[str] = REHEARSE) -> int:
    """Run the cells that are missing, and report; exit code 1 if a cell failed or is missing.

    `rehearse` is the command that rehearses one cell.
    """
    options = parse(flags)
    try:
        wanted = places(options)
    except UsageError as error:
        print(f"rehearsals: {error}", file=sys.stderr)
        return error.exit_code
    search = Search(wanted, options.seeds)
    if options.dry_run:
        print(forecast(search.expected(), options.jobs))
        return 0
    limits = Limits(
        options.within, options.jobs, options.budget, options.cell_limit, retry=options.retry_failed
    )
    matrix = Matrix(options.data, ResultStore(options.out / "cells"), limits, rehearse)
    if options.report:
        matrix.load_all({(p.set_name, short_name(p.server)) for p in wanted}, options.methods)
        if not matrix.results:
            print(f"rehearsals: {options.out} has no such cells", file=sys.stderr)
            return 1
        write(matrix, options)
        return 0
    return run(matrix, search, options)


def run(matrix: Matrix, search: Search, options: argparse.Namespace) -> int:
    """Run the cells that are missing, and report; returns the exit code."""
    missing, interrupted = [], False
    reused = ["sources"] if options.reuse_fixed else []
    try:
        for cells in search.rounds(matrix.results):
            todo = matrix.load(cells, ignored_if_fixed=reused)
            if todo:
                rest = as_duration(remaining_s(matrix.results, todo, options.jobs))
                print(f"{len(cells)} cells, {len(todo)} to run, about {rest}", flush=True)
                missing += matrix.run(todo, show)
    except (KeyboardInterrupt, InterruptedCell):
        interrupted = True
    if matrix.results:
        write(matrix, options)
    if interrupted:
        return INTERRUPTED
    failed = [result for result in matrix.results if result["error"]]
    print(f"{len(failed)} cells failed, {len(missing)} have not run", flush=True)
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
