"""Training times to a P@1 of networks with very many labels, with and without hashing.

Trains F-128-C with softmax, target 1/#labels, on one data set: hogbatch with a hashed and with a
dense output layer, and PyTorch over all labels and over a sample of them, at the best settings of a
search (benchmarks/peers/tuned_slide.json); in turn, once per seed. P@1, P@3 and P@5 are exact and
over all test rows. Seconds count training only: reading, compilation, warm-up and evaluation are
excluded for all.

    scripts/bench slide --data DIR/citeulike-train.xmc.gz --test DIR/citeulike-test.xmc.gz
    scripts/bench slide --data ... --test ... --peers pytorch-sampled --tune --seconds 30

Without PyTorch (`pip install '.[peers]'`) only hogbatch is measured. Prints one line per run and a
table of speeds, seconds to each target P@1 and the best P@1. With --tune it searches the peers'
grids instead and writes the settings found into tuned_slide.json.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, hogbatch_run, machine, report
from benchmarks.common.data_sets import Task, task_directory
from benchmarks.common.peer_process import train_once
from benchmarks.common.report import Run
from benchmarks.common.search import TunedSettings, tune
from benchmarks.peers import TUNED_WIDE, WIDE, installed, peer
from benchmarks.peers.contract import Setting, Stopwatch
from benchmarks.slide.table import LEADING, METRICS, summarised, table
from hogbatch.errors import HogbatchError

HIDDEN = 128  # units of the hidden layer
OURS = {"lsh": ["--output", "lsh"], "dense": ["--output", "dense"]}
HERE = Path()  # to which the paths of the data files are relative
NEVER = -1.0  # a target of 1 - P@1 that no run reaches, so that it lasts until its time limit
SETTINGS = TunedSettings(TUNED_WIDE)


def train_ours(task: Task, labels: int, kind: str, seed: int, options: argparse.Namespace) -> Run:
    """One run of `hogbatch train`.

    With a hashed output layer, `active` is the fraction of the `labels` that an update computed.
    """
    flags = ["--loss", task.loss, *OURS[kind], *options.flags]
    flags += ["--max-seconds", f"{options.seconds:g}", "--seed", str(seed)]
    outcome = hogbatch_run.train([*task.flags(HERE), *flags])
    if outcome.error:
        return failed(outcome.error)
    summary = outcome.summary
    curve = [
        [point["seconds"], *(point["test_values"][name] for name in METRICS)]
        for point in outcome.history
        if point["test_values"]
    ]
    run = {"rows": summary["rows"], "curve": curve, "wall_s": outcome.wall_s}
    run["workers"] = outcome.workers
    hashing = [each for each in summary["workers"] if each["active"] is not None]
    if updates := sum(each["updates"] for each in hashing):
        computed = sum(each["active"] * each["updates"] for each in hashing)
        run["active"] = round(computed / updates / labels, 5)
    return run


def train_peer(name: str, directory: Path, setting: Setting, seed: int, seconds: float) -> Run:
    """One run of a peer in a process of its own."""
    try:
        answer = train_once(name, directory, setting, seed, Stopwatch(NEVER, seconds))
    except RuntimeError as error:
        return failed(str(error))
    curve = [
        [point[0], *(found[metric] for metric in METRICS)]
        for point, found in zip(answer["curve"], answer["metrics"], strict=True)
    ]
    return {"rows": answer["rows"], "curve": curve, "setting": setting}


def failed(error: str) -> Run:
    """The record of a run that failed."""
    return {"error": error, "rows": 0, "curve": []}


def measure(options: argparse.Namespace, task: Task) -> list[Run]:
    """Train hogbatch and the peers, once per seed.

    They train in turn, so that changes in the machine's speed affect all of them.
    """
    runs = []
    with task_directory(task, HERE) as (problem, directory):
        for seed in range(options.seeds):
            for name in (*options.ours, *options.peers):
                setting = SETTINGS.setting(options.settings or options.name, name)
                if name in OURS:
                    run = train_ours(task, problem.outputs, name, seed, options)
                elif setting:
                    run = train_peer(name, directory, setting, seed, options.seconds)
                else:
                    run = failed("no setting is known; search for one with --tune")
                runs.append({"name": name, "seed": seed, **summarised(run, options.targets)})
                print(f"{name} seed {seed}: {line(runs[-1])}", flush=True)
    return runs


def line(run: Run) -> str:
    """One line of progress about `run`."""
    if "error" in run:
        error: str = run["error"]
        return error
    arrived = ", ".join(f"{LEADING} {target} in {at} s" for target, at in run["seconds"].items())
    active = f", {run['active']:.2%} of the labels active" if "active" in run else ""
    return f"{run['rows_per_s']} rows/s, {arrived}, best {run['best'][LEADING]}{active}"


def tune_all(options: argparse.Namespace, task: Task) -> None:
    """Search each peer's grid for the fastest to the last target; store each setting found."""
    watch = Stopwatch(task.target, options.seconds)
    with task_directory(task, HERE) as (problem, directory):
        for name in options.peers:
            tune(name, SETTINGS, options.name, problem, directory, watch)


def description(options: argparse.Namespace) -> dict[str, Any]:
    """Machine, versions and data set; directories are removed from paths."""
    found = machine.describe(*(peer(name).package for name in options.peers))
    return found | {
        "command": machine.without_directories(found["command"]),
        "set": options.name,
        "seconds": options.seconds,
        "curve": ["seconds", *METRICS],
    }


def fractions(text: str) -> list[float]:
    """An argparse type: numbers between 0 and 1, comma-separated, ascending."""
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or numbers != sorted(numbers) or not 0 < numbers[0] <= numbers[-1] < 1:
        raise argparse.ArgumentTypeError(
            f"expected ascending numbers between 0 and 1, as in 0.5,0.55; got {text}"
        )
    return numbers


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("slide", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FILE", help="training rows, XMC text")
    add("--test", type=Path, required=True, metavar="FILE", help="test rows")
    add("--ours", type=arguments.names(OURS, none=""), default=list(OURS), help=", ".join(OURS))
    add("--flags", type=shlex.split, default=[], metavar="'...'", help="flags of `hogbatch train`")
    add("--peers", type=arguments.names(WIDE, none=""), default=list(WIDE), help=", ".join(WIDE))
    add("--settings", metavar="SET", help="data set of the tuned settings (default: its own)")
    add("--targets", type=fractions, default=[0.5, 0.55], metavar="X,X", help="targets for P@1")
    add("--seconds", type=float, default=60.0, help="training seconds of a run (default: 60)")
    add("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    add("--tune", action="store_true", help="search of the peers' grids instead of a measurement")
    arguments.add_json(parser)
    return parser.parse_args(flags)


def main(flags: Sequence[str] | None = None) -> int:
    """Tune, or measure and print."""
    options = parse(flags)
    options.peers = installed(options.peers)
    options.name = re.split(r"[-_.]", options.data.name)[0]
    target = 1 - options.targets[-1]
    task = Task(str(options.data), (HIDDEN,), target, str(options.test), "multilabel-softmax")
    try:
        if options.tune:
            tune_all(options, task)
            return 0
        runs = measure(options, task)
        results = {"about": description(options), "runs": runs}
    except HogbatchError as error:
        print(f"slide: {error}", file=sys.stderr)
        return 2
    print(table(runs, options.targets))
    report.write_runs(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
