"""How soon does hogbatch reach a test loss, and how soon do others?

hogbatch at its defaults (data, network and target given) and each peer with the setting that a
search over its own grid found best (benchmarks/peers/tuned.json) train in turn on the same rows.
Seconds are of training alone: evaluation, reading, compiling and warming up are left out for all.

    scripts/bench time_to_loss --data DIR --seeds 3 --json out.json --plot out.svg
    scripts/bench time_to_loss --data DIR --tune --sets imdb --peers pytorch --limit 30

DIR holds w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz.
Peers: `pip install '.[peers]'` (for PyTorch without CUDA give its index of CPU wheels); one that
is not installed is left out.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from about import machine
from loss_curves import draw
from peers import MODULES, peer
from peers.contract import Problem, Rows, Setting, Watch, available, reached, write_problem
from peers.process import PeerProcess, rounded
from peers.search import Best, Processes, search

from hogbatch.data.load import load
from hogbatch.model.losses import choose_loss

OURS = "hogbatch"
TUNING_TEST_ROWS = 25_000  # at most: the search looks at many models
TUNED = Path(__file__).parent / "peers" / "tuned.json"

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A set, the network for it and the test loss to reach."""

    data: str
    hidden: tuple[int, ...]
    target: float
    test: str | None = None

    def flags(self, data: Path) -> list[str]:
        """For `hogbatch train`: the data and the network."""
        flags = [str(data / self.data), "--hidden", ",".join(map(str, self.hidden))]
        return flags + (["--test", str(data / self.test)] if self.test else [])

    def problem(self, data: Path, seed: int = 0) -> Problem:
        """The rows as hogbatch itself reads, splits and scales them in a run of this seed."""
        test = data / self.test if self.test else None
        loaded = load(data / self.data, test=test, seed=seed)
        assert loaded.test
        encoding = loaded.encoding
        rows = [Rows.of(examples, encoding.outputs) for examples in (loaded.train, loaded.test)]
        return Problem(
            choose_loss("auto", encoding.kind).name, self.hidden, encoding.outputs, *rows
        )


IMDB = ("imdb-train.svm.gz", "imdb-test.svm.gz")
TASKS = {
    "covtype": Task("covtype.csv.gz", (512, 512, 512), 0.45),
    "w8a": Task("w8a.svm.gz", (512, 512, 512), 0.05),
    "delicious": Task("delicious-train.xmc.gz", (512, 512), 61.5, "delicious-test.xmc.gz"),
    "imdb": Task(IMDB[0], (128,), 0.28, IMDB[1]),
    "imdb-linear": Task(IMDB[0], (), 0.30, IMDB[1]),
}


def train_ours(task: Task, data: Path, seed: int, limit_s: float) -> Run:
    """One run of `hogbatch train` at its defaults; `wall_s` is that of the whole process."""
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory) / "run"
        flags = ["--target-loss", str(task.target), "--max-seconds", str(limit_s)]
        flags += ["--seed", str(seed), "--run-dir", str(run_dir), "--quiet"]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "hogbatch.cli", "train", *task.flags(data), *flags], check=True
        )
        wall_s = time.perf_counter() - began
        summary = json.loads((run_dir / "summary.json").read_text())
    return {
        "curve": rounded(curve_of(summary["history"])),
        "rows": summary["rows"],
        "wall_s": round(wall_s, 3),
        "workers": {w["name"]: [w["threads"], w["batch_size"]] for w in summary["workers"]},
    }


def curve_of(history: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Training seconds and test loss, where the loss was finite."""
    found = [(point["seconds"], point["test_loss"]) for point in history]
    return [(seconds, loss) for seconds, loss in found if loss is not None]


@contextmanager
def laid_down(
    task: Task, data: Path, seed: int = 0, test_rows: int | None = None
) -> Iterator[tuple[Problem, Path]]:
    """The task's problem for runs of `seed`, with `test_rows` or all, and where peers read it."""
    problem = task.problem(data, seed)
    part = slice(test_rows)
    problem = replace(problem, test=Rows(problem.test.x[part], problem.test.y[part]))
    with tempfile.TemporaryDirectory() as directory:
        write_problem(problem, Path(directory))
        yield problem, Path(directory)


def measure(arguments: argparse.Namespace, names: list[str]) -> list[Run]:
    """Train everyone on each set, once a seed, in turn: a drift of the machine meets all alike."""
    tuned, runs = read_tuned(), []
    for which in arguments.sets:
        task = TASKS[which]
        for seed in range(arguments.seeds):  # whose test rows are all the same ones
            with laid_down(task, arguments.data, seed) as (_, directory):
                runs.append(
                    finished(
                        train_ours(task, arguments.data, seed, arguments.limit), which, OURS, seed
                    )
                )
                for name in names:
                    if entry := tuned.get(which, {}).get(name):
                        run = train_peer(
                            name,
                            directory,
                            entry["setting"],
                            seed,
                            Watch(task.target, arguments.limit),
                        )
                        runs.append(finished(run, which, name, seed))
    return runs


def train_peer(name: str, directory: Path, setting: Setting, seed: int, watch: Watch) -> Run:
    """One run in a process of its own."""
    with PeerProcess(name, directory, setting.get("threads", 1)) as process:
        return process.train(setting, seed, watch)


def finished(run: Run, which: str, name: str, seed: int) -> Run:
    """`run` with its labels and the seconds to the target (null: not within the limit); said."""
    seconds = reached(run["curve"], TASKS[which].target)
    print(f"{which} {name} seed {seed}: {seconds} s, {run['curve'][-1]}", flush=True)
    return {"set": which, "name": name, "seed": seed, "seconds": seconds, **run}


def tune(arguments: argparse.Namespace, names: list[str]) -> None:
    """Search each peer's grid on each set; keep what is found at once."""
    for which in arguments.sets:
        task = TASKS[which]
        with laid_down(task, arguments.data, test_rows=TUNING_TEST_ROWS) as (problem, directory):
            for name in names:
                if not (settings := peer(name).grid(problem)):
                    continue
                known = read_tuned().get(which, {}).get(name, {}).get("setting")
                with closing(Processes(name, directory, print)) as processes:
                    watch = Watch(task.target, arguments.limit)
                    best = search(peer(name), settings, known, processes.train, watch)
                if best.setting:
                    keep(which, name, best, len(settings))


def keep(which: str, name: str, best: Best, grid_size: int) -> None:
    """Write the setting found into tuned.json, with what it showed in the search."""
    tuned = read_tuned()
    tuned.setdefault(which, {})[name] = {
        "setting": best.setting,
        "seconds": best.seconds,
        "lowest_loss": min(loss for _, loss in best.curve),
        "grid_size": grid_size,
    }
    TUNED.write_text(json.dumps(tuned, indent=1) + "\n", encoding="utf-8")


def read_tuned() -> dict[str, dict[str, Any]]:
    """{set: {peer: {"setting": ..., "seconds": ..., ...}}}."""
    found: dict[str, dict[str, Any]] = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    return found


def median(seconds: Sequence[float | None]) -> float:
    """Where a run that did not arrive counts as endless."""
    return statistics.median(math.inf if each is None else each for each in seconds)


def medians(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Median seconds to the target by set and name."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for run in runs:
        found.setdefault(run["set"], {}).setdefault(run["name"], []).append(run["seconds"])
    return {
        which: {name: median(seconds) for name, seconds in by_name.items()}
        for which, by_name in found.items()
    }


def table(runs: Sequence[Run], limit_s: float) -> str:
    """Median seconds to the target, and hogbatch's over those of the best peer."""
    names = [name for name in MODULES if any(run["name"] == name for run in runs)]
    lines = [f"| set | test loss | {OURS} | " + " | ".join(names) + " | hogbatch / best peer |"]
    lines.append("|---" * (len(names) + 4) + "|")
    for which, seconds in medians(runs).items():
        cells = [cell(seconds.get(name), limit_s) for name in (OURS, *names)]
        row = [which, f"{TASKS[which].target}", *cells, ratio(seconds, limit_s)]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def cell(seconds: float | None, limit_s: float) -> str:
    """Seconds for the table; None is no task for that peer, infinity is more than the limit."""
    if seconds is None:
        return "-"
    return f"> {limit_s:g} s" if math.isinf(seconds) else f"{seconds:.3g} s"


def ratio(seconds: dict[str, float], limit_s: float) -> str:
    """hogbatch's seconds over the best peer's; a bound where no peer arrived."""
    ours = seconds.get(OURS, math.inf)
    best = min((each for name, each in seconds.items() if name != OURS), default=None)
    if best is None or math.isinf(ours):
        return "-"
    return f"< {ours / limit_s:.2f}" if math.isinf(best) else f"{ours / best:.2f}"


def present(names: Sequence[str]) -> list[str]:
    """Those of the peers that are installed; says which are not."""
    for name in names:
        if available(peer(name)) is None:
            print(f"{name} left out: {peer(name).package} is not installed", flush=True)
    return [name for name in names if available(peer(name)) is not None]


def circumstances(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """When, where, with what and how it was measured."""
    tuned, found = read_tuned(), machine()
    packages = {peer(name).package for name in names}
    return found | {
        "versions": found["versions"] | {package: version(package) for package in packages},
        "limit_s": arguments.limit,
        "targets": {which: TASKS[which].target for which in arguments.sets},
        "settings": {which: tuned.get(which, {}) for which in arguments.sets},
    }


def listed(known: Sequence[str]) -> Any:
    """An argparse type: names out of `known`, separated by commas; "" is none."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(
                f"expected names out of {', '.join(known)}; got {', '.join(unknown)}"
            )
        return names

    return read


def parse() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sets", type=listed(list(TASKS)), default=list(TASKS))
    parser.add_argument("--peers", type=listed(list(MODULES)), default=list(MODULES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="training seconds of a run")
    parser.add_argument("--tune", action="store_true", help="search the peers' grids instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an .svg or .png of the curves")
    return parser.parse_args()


def main() -> None:
    """Tune, or measure and print."""
    arguments = parse()
    names = present(arguments.peers)
    if arguments.tune:
        return tune(arguments, names)
    runs = measure(arguments, names)
    results = {"about": circumstances(arguments, names), "runs": runs}
    print(table(runs, arguments.limit))
    if arguments.json:
        arguments.json.write_text(json.dumps(results) + "\n", encoding="utf-8")
    if arguments.plot:
        draw(results, arguments.plot)


if __name__ == "__main__":
    main()
