"""How soon does a network with very many labels reach a P@1, with and without hashing?

Trains F-128-C with softmax, target 1/#labels, on one set: ours with the output layer hashed and
with the same layer dense, PyTorch over all labels and over a sample of them at the settings that a
search found best (benchmarks/peers/tuned_slide.json); in turn, once a seed. P@1,3,5 are exact and
over all test rows. Seconds are of training alone: reading, compiling, warming up and evaluation are
left out for all.

    scripts/bench slide --data DIR/citeulike-train.xmc.gz --test DIR/citeulike-test.xmc.gz
    scripts/bench slide --synthetic features=135909,labels=100000,rows=100000 --targets 0.05
    scripts/bench slide --data ... --test ... --peers pytorch-sampled --tune --seconds 30

Without PyTorch (`pip install '.[peers]'`) ours are measured alone.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import about
from peers import WIDE, peer
from peers.contract import Problem, Rows, Setting, Watch, available, write_problem
from peers.process import PeerProcess
from peers.search import Best, Processes, search
from slide_table import LEADING, METRICS, summed_up, table

from hogbatch.data.load import load
from hogbatch.data.synthetic import SyntheticSettings, generate, write_xmc
from hogbatch.errors import HogbatchError, UsageError

OURS = {"lsh": ["--output", "lsh"], "dense": ["--output", "dense"]}
HIDDEN = 128
NEVER = -1.0  # as a target of 1 - P@1: a run lasts until its seconds are over
TUNED = Path(__file__).parent / "peers" / "tuned_slide.json"

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A set in two files of XMC text."""

    name: str
    train: Path
    test: Path

    def problem(self) -> Problem:
        """The rows as hogbatch itself reads them."""
        loaded = load(self.train, test=self.test)
        if loaded.encoding.kind != "multilabel":
            raise UsageError(
                f"{self.train}: expected lists of labels, as XMC text has them; "
                f"got {loaded.encoding.kind} labels"
            )
        assert loaded.test
        outputs = loaded.encoding.outputs
        rows = [Rows.of(examples, outputs) for examples in (loaded.train, loaded.test)]
        return Problem("multilabel-softmax", (HIDDEN,), outputs, *rows)


@contextmanager
def set_of(arguments: argparse.Namespace) -> Iterator[Task]:
    """The set that was asked for; a synthetic one is generated, and gone afterwards."""
    if arguments.data:
        name = re.split(r"[-_.]", arguments.data.name)[0]
        yield Task(name, arguments.data, arguments.test)
        return
    settings: SyntheticSettings = arguments.synthetic
    with tempfile.TemporaryDirectory() as directory:
        task = Task("synthetic", *(Path(directory) / f"{part}.xmc" for part in ("train", "test")))
        for examples, path in zip(generate(settings), (task.train, task.test), strict=True):
            write_xmc(examples, settings.labels, path)
        yield task


def train_ours(task: Task, labels: int, kind: str, seed: int, arguments: argparse.Namespace) -> Run:
    """One run of `hogbatch train`; `wall_s` is that of the whole process.

    Where the output layer is hashed, `active` is the share of the `labels` that an update computed.
    """
    flags = ["--test", str(task.test), "--hidden", str(HIDDEN), "--loss", "softmax", *OURS[kind]]
    flags += [*arguments.flags, "--max-seconds", f"{arguments.seconds:g}", "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory) / "run"
        command = [sys.executable, "-m", "hogbatch.cli", "train", str(task.train), *flags]
        command += ["--run-dir", str(run_dir), "--quiet"]
        began = time.perf_counter()
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        wall_s = round(time.perf_counter() - began, 3)
        if done.returncode:
            return failed(f"exit code {done.returncode}: {done.stderr.strip()}")
        summary = json.loads((run_dir / "summary.json").read_text())
    curve = [
        [point["seconds"], *(point["test_values"][name] for name in METRICS)]
        for point in summary["history"]
        if point["test_values"]
    ]
    workers = {each["name"]: [each["threads"], each["batch_size"]] for each in summary["workers"]}
    run = {"rows": summary["rows"], "curve": curve, "wall_s": wall_s, "workers": workers}
    hashing = [each for each in summary["workers"] if each["active"] is not None]
    if updates := sum(each["updates"] for each in hashing):
        computed = sum(each["active"] * each["updates"] for each in hashing)
        run["active"] = round(computed / updates / labels, 5)
    return run


def train_peer(name: str, directory: Path, setting: Setting, seed: int, seconds: float) -> Run:
    """One run in a process of its own."""
    with PeerProcess(name, directory, setting["threads"]) as process:
        try:
            answer = process.train(setting, seed, Watch(NEVER, seconds))
        except RuntimeError as error:
            return failed(str(error))
    curve = [
        [point[0], *(found[metric] for metric in METRICS)]
        for point, found in zip(answer["curve"], answer["metrics"], strict=True)
    ]
    return {"rows": answer["rows"], "curve": curve, "setting": setting}


def failed(error: str) -> Run:
    """A run that ended before its time."""
    return {"error": error, "rows": 0, "curve": []}


def measure(arguments: argparse.Namespace, task: Task) -> list[Run]:
    """Train everyone, once a seed, in turn: a drift of the machine meets all alike."""
    runs = []
    problem = task.problem()
    tuned = read_tuned().get(arguments.settings or task.name, {})
    with laid_down(problem) as directory:
        for seed in range(arguments.seeds):
            for name in (*arguments.ours, *arguments.peers):
                if name in OURS:
                    run = train_ours(task, problem.outputs, name, seed, arguments)
                elif name in tuned:
                    setting = tuned[name]["setting"]
                    run = train_peer(name, directory, setting, seed, arguments.seconds)
                else:
                    run = failed("no setting is known; search one with --tune")
                runs.append({"name": name, "seed": seed, **summed_up(run, arguments.targets)})
                print(f"{name} seed {seed}: {told(runs[-1])}", flush=True)
    return runs


def told(run: Run) -> str:
    """A line about it."""
    if "error" in run:
        return run["error"]
    arrived = ", ".join(f"{LEADING} {target} in {at} s" for target, at in run["seconds"].items())
    active = f", {run['active']:.2%} of the labels active" if "active" in run else ""
    return f"{run['rows_per_s']} rows/s, {arrived}, {run['best'][LEADING]} at best{active}"


@contextmanager
def laid_down(problem: Problem) -> Iterator[Path]:
    """The directory from which peers read it."""
    with tempfile.TemporaryDirectory() as directory:
        write_problem(problem, Path(directory))
        yield Path(directory)


def tune(arguments: argparse.Namespace, task: Task) -> None:
    """Search each peer's grid for the soonest at the last target; keep what is found at once."""
    problem, watch = task.problem(), Watch(1 - arguments.targets[-1], arguments.seconds)
    with laid_down(problem) as directory:
        for name in arguments.peers:
            settings = peer(name).grid(problem)
            known = read_tuned().get(task.name, {}).get(name, {}).get("setting")
            with closing(Processes(name, directory, print)) as processes:
                best = search(peer(name), settings, known, processes.train, watch)
            if best.setting:
                keep(task.name, name, best, len(settings))


def keep(which: str, name: str, best: Best, grid_size: int) -> None:
    """Write the setting found into tuned_slide.json, with what it showed in the search."""
    tuned = read_tuned()
    tuned.setdefault(which, {})[name] = {
        "setting": best.setting,
        "target": round(1 - best.target, 6),
        "seconds": best.seconds,
        "best": round(1 - min(error for _, error in best.curve), 5),
        "grid_size": grid_size,
    }
    TUNED.write_text(json.dumps(tuned, indent=1) + "\n", encoding="utf-8")


def read_tuned() -> dict[str, dict[str, Any]]:
    """{set: {peer: {"setting": ..., "seconds": ..., ...}}}."""
    found: dict[str, dict[str, Any]] = json.loads(TUNED.read_text()) if TUNED.exists() else {}
    return found


def circumstances(arguments: argparse.Namespace, task: Task) -> dict[str, Any]:
    """When, where, with what and how it was measured; of paths the last part alone."""
    found = about.machine()
    packages = {peer(name).package for name in arguments.peers}
    rows = arguments.synthetic
    return found | {
        "command": re.sub(r"[^\s=,]*/", "DIR/", found["command"]),
        "versions": found["versions"] | {package: version(package) for package in packages},
        "set": {each.name: getattr(rows, each.name) for each in fields(rows)}
        if rows
        else task.name,
        "seconds": arguments.seconds,
        "curve": ["seconds", *METRICS],
    }


def present(names: Sequence[str]) -> list[str]:
    """Those of the peers that are installed; says which are not."""
    for name in names:
        if available(peer(name)) is None:
            print(f"{name} left out: {peer(name).package} is not installed", flush=True)
    return [name for name in names if available(peer(name)) is not None]


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


def fractions(text: str) -> list[float]:
    """An argparse type: numbers between 0 and 1, separated by commas, ascending."""
    try:
        found = [float(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or found != sorted(found) or not 0 < found[0] <= found[-1] < 1:
        raise argparse.ArgumentTypeError(
            f"expected ascending numbers between 0 and 1, as in 0.5,0.55; got {text}"
        )
    return found


def synthetic(text: str) -> SyntheticSettings:
    """An argparse type: "labels=1000,rows=500", fields of data.synthetic.SyntheticSettings."""
    kinds = {each.name: type(each.default) for each in fields(SyntheticSettings)}
    found = {}
    for each in filter(None, text.split(",")):
        name, _, value = each.partition("=")
        try:
            found[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"expected NAME=NUMBER with a name out of {', '.join(kinds)}; got {each}"
            ) from None
    try:
        return SyntheticSettings(**found)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 and one sentence for what they cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="FILE", help="training rows, XMC text")
    source.add_argument("--synthetic", type=synthetic, metavar="NAME=NUMBER,...")
    add("--test", type=Path, metavar="FILE", help="test rows of --data")
    add("--ours", type=listed(list(OURS)), default=list(OURS), help=", ".join(OURS))
    add("--flags", type=shlex.split, default=[], metavar="'...'", help="for `hogbatch train`")
    add("--peers", type=listed(list(WIDE)), default=list(WIDE), help=", ".join(WIDE))
    add("--settings", metavar="SET", help="whose tuned settings peers take (default: its own)")
    add("--targets", type=fractions, default=[0.5, 0.55], metavar="X,X", help="of P@1")
    add("--seconds", type=float, default=60.0, help="training seconds of a run")
    add("--seeds", type=int, default=3)
    add("--tune", action="store_true", help="search the peers' grids instead")
    add("--json", type=Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args(given)
    if bool(arguments.data) != bool(arguments.test):
        parser.error("--data and --test go together; give the file of test rows as well")
    return arguments


def main(given: Sequence[str] | None = None) -> int:
    """Tune, or measure and print."""
    arguments = parse(given)
    arguments.peers = present(arguments.peers)
    try:
        with set_of(arguments) as task:
            if arguments.tune:
                tune(arguments, task)
                return 0
            runs = measure(arguments, task)
            results = {"about": circumstances(arguments, task), "runs": runs}
    except HogbatchError as error:
        print(f"slide: {error}", file=sys.stderr)
        return 2
    print(table(runs, arguments.targets))
    if arguments.json:
        arguments.json.write_text(json.dumps(results) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
