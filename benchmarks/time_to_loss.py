"""Training seconds of hogbatch and of other frameworks until they reach a test loss.

hogbatch runs at its defaults (data, network and target given). Each peer runs with the best setting
of a search over its own grid (benchmarks/peers/tuned.json). All train in turn on the same rows.
Seconds count training only: evaluation, reading, compilation and warm-up are excluded for all.

    scripts/bench time_to_loss --data DIR --seeds 3 --json out.json --plot out.svg
    scripts/bench time_to_loss --data DIR --tune --sets imdb --peers pytorch --limit 30

DIR holds w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz.
Install the peers with `pip install '.[peers]'` (for PyTorch without CUDA use its index of CPU
wheels); peers that are not installed are skipped.

Prints one line per run and a table of the median seconds to the target. With --tune it searches the
peers' grids instead and writes the settings found into tuned.json.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, hogbatch_run, machine, report
from benchmarks.common.data_sets import DIRECTORY_HELP, TASKS, Task, task_directory
from benchmarks.common.figures import draw_loss_curves
from benchmarks.common.peer_process import rounded, train_once
from benchmarks.common.report import OURS, Run
from benchmarks.common.search import TunedSettings, tune
from benchmarks.peers import ON_CPU, TUNED, peer
from benchmarks.peers.contract import Stopwatch, reached

TUNING_TEST_ROWS = 25_000  # maximum in a search, which evaluates many models
SETTINGS = TunedSettings(TUNED)


def train_ours(task: Task, data: Path, seed: int, limit_s: float) -> Run:
    """One run of `hogbatch train` at its defaults."""
    flags = ["--target-loss", str(task.target), "--max-seconds", str(limit_s), "--seed", str(seed)]
    outcome = hogbatch_run.train([*task.flags(data), *flags])
    if outcome.error:
        raise SystemExit(f"time_to_loss: hogbatch train failed: {outcome.error}")
    return {
        "curve": rounded(hogbatch_run.loss_curve(outcome.history)),
        "rows": outcome.summary["rows"],
        "wall_s": outcome.wall_s,
        "workers": outcome.workers,
    }


def measure(options: argparse.Namespace, names: Sequence[str]) -> list[Run]:
    """Train hogbatch and all peers on each data set, once per seed.

    They train in turn, so that changes in the machine's speed affect all of them.
    """
    tuned, runs = SETTINGS.read(), []
    for which in options.sets:
        task = TASKS[which]
        for seed in range(options.seeds):
            with task_directory(task, options.data, seed) as (_, directory):
                ours = train_ours(task, options.data, seed, options.limit)
                runs.append(labelled(ours, which, OURS, seed))
                for name in names:
                    if entry := tuned.get(which, {}).get(name):
                        watch = Stopwatch(task.target, options.limit)
                        run = train_once(name, directory, entry["setting"], seed, watch)
                        runs.append(labelled(run, which, name, seed))
    return runs


def labelled(run: Run, which: str, name: str, seed: int) -> Run:
    """`run` with its labels and its seconds to the target (None if not reached); prints a line."""
    seconds = reached(run["curve"], TASKS[which].target)
    print(f"{which} {name} seed {seed}: {seconds} s, {run['curve'][-1]}", flush=True)
    return {"set": which, "name": name, "seed": seed, "seconds": seconds, **run}


def tune_all(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Search each peer's grid on each data set; store each setting as soon as it is found."""
    for which in options.sets:
        task, watch = TASKS[which], Stopwatch(TASKS[which].target, options.limit)
        with task_directory(task, options.data, test_rows=TUNING_TEST_ROWS) as (problem, directory):
            for name in names:
                tune(name, SETTINGS, which, problem, directory, watch)


def table(runs: Sequence[Run], limit_s: float) -> str:
    """Median seconds to the target, and the ratio of hogbatch's to the best peer's."""
    names = [name for name in ON_CPU if any(run["name"] == name for run in runs)]
    head = ["set", "test loss", OURS, *names, "hogbatch / best peer"]
    rows = []
    for which, seconds in report.medians(runs).items():
        cells = [report.seconds_cell(seconds.get(name), limit_s) for name in (OURS, *names)]
        rows.append([which, f"{TASKS[which].target}", *cells, ratio(seconds, limit_s)])
    return report.markdown(head, rows)


def ratio(seconds: dict[str, float], limit_s: float) -> str:
    """hogbatch's seconds over the best peer's; an upper bound if no peer reached the target."""
    ours = seconds.get(OURS, math.inf)
    best = min((each for name, each in seconds.items() if name != OURS), default=None)
    if best is None or math.isinf(ours):
        return "-"
    return f"< {ours / limit_s:.2f}" if math.isinf(best) else f"{ours / best:.2f}"


def description(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Machine, versions, targets and the peers' settings."""
    tuned = SETTINGS.read()
    return machine.describe(*(peer(name).PACKAGE for name in names)) | {
        "limit_s": options.limit,
        "targets": {which: TASKS[which].target for which in options.sets},
        "settings": {which: tuned.get(which, {}) for which in options.sets},
    }


def parse(flags: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("time_to_loss", __doc__)
    add, sets, peers = parser.add_argument, list(TASKS), list(ON_CPU)
    add("--data", type=Path, required=True, metavar="DIR", help=DIRECTORY_HELP)
    add("--sets", type=arguments.names(sets), default=sets, help=", ".join(sets))
    add("--peers", type=arguments.names(peers, none=""), default=peers, help=", ".join(peers))
    arguments.add_number(parser, "--seeds", 3, "number of seeds")
    arguments.add_number(parser, "--limit", 60.0, "maximum training seconds of a run")
    add("--tune", action="store_true", help="search of the peers' grids instead of a measurement")
    arguments.add_json(parser)
    add("--plot", type=Path, metavar="FILE", help="output file for the curves, .svg or .png")
    return parser.parse_args(flags)


def installed(names: Sequence[str]) -> list[str]:
    """Return the peers that are installed; print the names of the others."""
    found = []
    for name in names:
        if machine.versions(peer(name).PACKAGE):
            found.append(name)
        else:
            print(f"skipping {name}: {peer(name).PACKAGE} is not installed", flush=True)
    return found


def main(flags: Sequence[str] | None = None) -> None:
    """Tune, or measure and print."""
    options = parse(flags)
    names = installed(options.peers)
    if options.tune:
        return tune_all(options, names)
    runs = measure(options, names)
    results = {"about": description(options, names), "runs": runs}
    print(table(runs, options.limit))
    report.write_runs(options.json, results)
    if options.plot:
        draw_loss_curves(results, options.plot)


if __name__ == "__main__":
    main()
