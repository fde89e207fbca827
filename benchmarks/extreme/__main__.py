"""Extreme multi-label programs: hogbatch, PECOS, napkinXC, fastText and PyTorch's sampled softmax.

Each program trains on the same rows in a process of its own and ranks the labels of the test rows.
P@k and PSP@k are those of hogbatch's metrics for all of them.

    scripts/bench extreme --data DIR/citeulike-train.xmc.gz --test DIR/citeulike-test.xmc.gz
    ... --programs hogbatch,pecos --hogbatch max-seconds=5 --hogbatch 'max-seconds=5 hidden=128'
    ... --tune                                  chooses the settings of peers
    scripts/bench extreme --data amazon-like --rows 100000 --labels 100000 --programs hogbatch

Peers need NumPy 1: `python3 -m venv DIR`, `DIR/bin/pip install '.[extreme]'`, --python
DIR/bin/python. One that is not installed is skipped. --tune tries their documented settings on a
tenth of the training rows, never on test rows, and writes the best ones to tuned.json; peers then
train on all training rows. hogbatch runs once for each --hogbatch with these flags.

Training seconds of a peer begin when its rows are in memory; hogbatch's are those of summary.json.
Process seconds end with the trained model too, but begin with the process: imports, reading and,
for hogbatch, validation and saving are included. Memory is the highest sum over the processes of a
program, measured ten times a second. Recall is the fraction of rows whose first label is the one
with the highest score of all, for programs that do not compute all scores.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import arguments, machine, report
from benchmarks.common.report import Run
from benchmarks.common.search import TunedSettings
from benchmarks.extreme import generated, process
from benchmarks.extreme.programs import HOGBATCH, PROGRAMS
from benchmarks.peers.contract import Rows, Setting
from hogbatch.config.losses import choose_loss
from hogbatch.data.batch import multi_labels
from hogbatch.data.facts import Frequencies
from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.errors import HogbatchError
from hogbatch.model.metrics import Scored, measure

AMAZON_LIKE: Final = "amazon-like"
METRICS: Final = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
FIGURES: Final = {  # columns of the table, after those of the metrics, and their format
    "train_s": ".3g",
    "process_s": ".3g",
    "rank_s": ".3g",
    "memory_mib": ",.0f",
    "recall": ".3f",
}
TUNED: Final = TunedSettings(Path(__file__).with_name("tuned.json"))
LOSS: Final = choose_loss("auto", "multilabel")
VALIDATION: Final = 0.1  # of the training rows, to choose settings


class Split(NamedTuple):
    """Training and test rows, and the metrics of ranked labels."""

    train: Rows
    test: Rows

    def metrics(self, best: NDArray[np.int64]) -> dict[str, float]:
        """METRICS of `best` [N, K], the labels of the test rows, best first."""
        y = self.test.y
        labels = multi_labels(y.indptr.astype(np.int64), y.indices.astype(np.int32))
        counts = np.bincount(self.train.y.indices, minlength=y.shape[1])
        frequencies = Frequencies(len(self.train), counts)
        found = measure(Scored(LOSS, labels, None, best, frequencies))
        return {name: round(found[name], 4) for name in METRICS}


def read(train: Path, test: Path) -> Split:
    """The rows of two files, as they are written there."""
    loaded = load(train, files={"test": test}, fractions=Fractions(test=0), scale="none")
    outputs = loaded.encoding.outputs
    return Split(*(Rows.of(loaded.sets[part], outputs) for part in ("train", "test")))


def held_out(split: Split) -> Split:
    """Training rows alone, divided into training and validation rows."""
    order = np.random.default_rng(0).permutation(len(split.train))
    first = round(VALIDATION * len(order))
    x, y = split.train.x, split.train.y
    return Split(*(Rows(x[rows], y[rows]) for rows in (order[first:], order[:first])))


def train_once(name: str, split: Split, setting: Setting, seed: int, python: str) -> Run:
    """One run of a program on the rows of `split`, with its METRICS."""
    with tempfile.TemporaryDirectory() as directory:
        process.write_rows(Path(directory), x=split.train.x, y=split.train.y, test=split.test.x)
        found = process.run(name, Path(directory), setting, seed, python)
    if "error" in found:
        return found
    return found | split.metrics(found.pop("best"))


def tune(options: argparse.Namespace, split: Split) -> None:
    """Store the setting of each peer's grid with the highest P@1 on validation rows."""
    parts = held_out(split)
    for name in options.programs:
        tried = []
        for setting in PROGRAMS[name].grid(split.train.y.shape[1]):
            found = train_once(name, parts, setting, 0, options.python)
            print(f"{name} {setting}: {line(found)}", flush=True)
            tried.append((found.get("P@1", -1.0), setting))
        best, setting = max(tried, key=lambda each: each[0])
        entry = {"setting": setting, "validation P@1": best, "grid_size": len(tried)}
        TUNED.keep(options.name, name, entry)


def measured(options: argparse.Namespace, split: Split, files: Sequence[Path]) -> list[Run]:
    """Train each program once per seed, in turn, so that the machine's speed affects all."""
    settings = {}
    for name in options.programs:
        grid = PROGRAMS[name].grid(split.train.y.shape[1])
        settings[name] = TUNED.setting(options.settings or options.name, name) or grid[0]
    if HOGBATCH in settings:
        data = [str(files[0].resolve()), "--test-fraction", "0"]
        del settings[HOGBATCH]
        for text in options.hogbatch:
            settings[f"{HOGBATCH} {text}"] = {"flags": [*data, *train_flags(text)]}
    runs = []
    for seed in range(options.seeds):
        for name, setting in settings.items():
            found = train_once(name.split()[0], split, setting, seed, options.python)
            shown = setting if name.split()[0] != HOGBATCH else {}
            runs.append({"name": name, "seed": seed, "setting": shown, **found})
            print(f"{name} seed {seed}: {line(found)}", flush=True)
    return runs


def train_flags(text: str) -> list[str]:
    """Flags of `hogbatch train` from text such as `max-seconds=5 plain`."""
    return [part for word in text.split() for part in f"--{word}".split("=", 1)]


def line(run: Run) -> str:
    """One line about a run."""
    if "error" in run:
        return f"failed: {run['error']}"
    return ", ".join(f"{name} {run[name]:g}" for name in (*METRICS, *FIGURES) if name in run)


def table(runs: Sequence[Run]) -> str:
    """Medians over seeds; a program of which no run succeeded has none."""
    rows = []
    for name in dict.fromkeys(run["name"] for run in runs):
        good = [run for run in runs if run["name"] == name and "error" not in run]

        def cell(key: str, form: str, good: list[Run] = good) -> str:
            found = [run[key] for run in good if key in run]
            return format(statistics.median(found), form) if found else "-"

        cells = [cell(metric, ".3f") for metric in METRICS]
        rows.append([name, *cells, *(cell(*figure) for figure in FIGURES.items())])
    return report.markdown(["program", *METRICS, *FIGURES], rows)


def installed(names: Sequence[str], python: str) -> list[str]:
    """The programs installed for the interpreter `python`; prints a line for each missing one."""
    code = "import sys; from importlib.metadata import version; version(sys.argv[1])"
    found = []
    for name in names:
        package = PROGRAMS[name].package
        tried = subprocess.run([python, "-c", code, package], capture_output=True)
        if name == HOGBATCH or not tried.returncode:
            found.append(name)
        else:
            print(f"skipping {name}: {python} has no {package}; see --help", flush=True)
    return found


def parse(flags: Sequence[str] | None) -> argparse.Namespace:
    """The flags; exit code 2 with one sentence for invalid values."""
    parser = arguments.parser("extreme", __doc__)
    add, whole = parser.add_argument, arguments.positive(int)
    add("--data", required=True, metavar="FILE", help=f"training rows, XMC text, or {AMAZON_LIKE}")
    add("--test", type=Path, metavar="FILE", help="test rows")
    add("--rows", type=whole, default=generated.ROWS, help=f"of {AMAZON_LIKE}, in training")
    add("--labels", type=whole, default=generated.LABELS, help=f"of {AMAZON_LIKE}")
    known = list(PROGRAMS)
    add("--programs", type=arguments.names(known), default=known, help=", ".join(known))
    add("--hogbatch", action="append", metavar="FLAGS", help="of hogbatch (max-seconds=5)")
    add("--python", default=sys.executable, metavar="FILE", help="interpreter of the peers")
    add("--settings", metavar="SET", help="data set of the tuned settings (default: its own)")
    arguments.add_number(parser, "--seeds", 1, "number of seeds")
    add("--tune", action="store_true", help="choose settings instead of a measurement")
    arguments.add_json(parser)
    options = parser.parse_args(flags)
    if (options.data == AMAZON_LIKE) == bool(options.test):
        parser.error(f"expected --test with a file as --data, and none with {AMAZON_LIKE}")
    options.hogbatch = options.hogbatch or ["max-seconds=5"]
    options.name = re.split(r"[_.]|-train", Path(options.data).name)[0]
    return options


def main(flags: Sequence[str] | None = None) -> int:
    """Tune, or measure and print."""
    options = parse(flags)
    options.programs = installed(options.programs, options.python)
    with tempfile.TemporaryDirectory() as directory:
        try:
            files = [Path(options.data), options.test]
            if options.data == AMAZON_LIKE:
                files = [*generated.write(Path(directory), options.rows, options.labels)]
            split = read(*files)
        except HogbatchError as error:
            print(f"extreme: {error}", file=sys.stderr)
            return 2
        if options.tune:
            options.programs = [name for name in options.programs if name != HOGBATCH]
            tune(options, split)
            return 0
        runs = measured(options, split, files)
    print(table(runs))
    about = machine.describe()
    about["command"] = machine.without_directories(about["command"])
    report.write_runs(options.json, {"about": about | {"set": options.name}, "runs": runs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
