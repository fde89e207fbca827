"""Where does the time of a hashed training step go, and what fraction of the top scores is found?

One thread trains F-128-C on a data set with the compiled loop of `hogbatch.kernels.cpu.lsh`, as it
is and, from the same start, with a clock around each of its kernels; the difference in speed is the
cost of the clocks. Hash tables are rebuilt on the same thread. All times are its processor time.

    scripts/bench slide.split --data DIR/citeulike-train.xmc.gz
    scripts/bench slide.split --synthetic features=135909,labels=100000,rows=100000 --batch 128

Prints the microseconds per row of each phase, the speeds, and the recall for rows of the training
set, at the end and with rebuilt tables: of the outputs with the highest exact scores, the fractions
that the tables hold for a row (candidates), that the row takes of these (found), and that its batch
computes (active).
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from benchmarks.common import arguments, machine, report
from benchmarks.slide import HIDDEN, synthetic
from benchmarks.slide.clocks import CLOCK, PHASES, clocked_loop
from hogbatch.config.lsh import parse as parse_lsh
from hogbatch.data.batch import Examples
from hogbatch.data.load import load
from hogbatch.data.order import epoch_order
from hogbatch.data.synthetic import generate
from hogbatch.errors import HogbatchError, UsageError
from hogbatch.kernels.contract import ACTIVE, LOSSES, ROWS, TOTALS, UPDATES, Hyper
from hogbatch.kernels.cpu.dense import aligned
from hogbatch.kernels.cpu.lsh import network as loop
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, draw
from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
from hogbatch.kernels.cpu.lsh.selection import (
    RULES,
    NeuronFinder,
    SelectionRule,
    clear_positions,
    scratch,
)
from hogbatch.kernels.cpu.lsh.sketches import empty_sketches
from hogbatch.kernels.cpu.lsh.tables import clear, empty_tables, insert
from hogbatch.kernels.cpu.model import FAN_IN, BatchSettings, ModelView
from hogbatch.kernels.cpu.network import forward
from hogbatch.model.network import Network
from hogbatch.model.optimizers import OPTIMIZERS

LOSS = "multilabel-softmax"
TOPS = (1, 20)  # numbers of highest scores per row for which recall is measured
RECALL_ROWS = 256  # approximately


class HashedTraining:
    """A network on one thread, and the hash tables over its output layer."""

    def __init__(self, rows: Examples, labels: int, given: argparse.Namespace) -> None:
        self.rows, self.batch, self.seed = rows.read_only(), given.batch, given.seed
        self.lsh = lsh = parse_lsh(given.lsh, labels, given.seed)
        network = Network.build(rows.features, (HIDDEN,), labels, "relu", LOSS, output_major=True)
        params = aligned(network.parameters)
        network.initialise(params, given.seed)
        self.weights, self.bias = (each.view(params) for each in network.tensors()[-2:])
        spec = OPTIMIZERS[given.optimizer]
        first, second = (np.zeros(params.size * (spec.slots > n), np.float32) for n in (0, 1))
        plan = np.array(network.layer_views(), np.int64)
        self.model = ModelView(plan, params, first, second, np.zeros(1, np.int64), first, second)
        self.lease = BatchSettings(given.batch, LOSSES[LOSS], spec.kind, 0, 1)
        self.hyper = Hyper(given.lr, 0.0, spec.momentum, spec.beta2, spec.epsilon)
        tables = empty_tables(lsh.tables, lsh.bits, lsh.bucket)
        rule = SelectionRule(RULES[lsh.sampling], lsh.top, lsh.seen, lsh.most, lsh.random)
        sketches = empty_sketches(HIDDEN, labels, lsh.seed)
        functions: Any = None  # drawn by `build`
        self.finder = NeuronFinder(rule, functions, tables, sketches)
        self.codes = np.empty((labels, lsh.tables), np.int32)
        self.thread = loop.HashedThread(
            np.full(plan[0, FAN_IN], -1, np.int32),
            scratch(given.batch, tables, labels, lsh.most, lsh.seed),
            np.full(labels, -1, np.int32),
            np.ones(labels, np.uint8),
        )
        self.builds, self.due, self.pause = 0, lsh.rehash, float(lsh.rehash)
        self.forget_times()
        self.build()

    def forget_times(self) -> None:
        """Reset all counters."""
        self.totals, self.seconds, self.building = np.zeros(TOTALS), 0.0, 0.0

    def build(self) -> None:
        """Hash the changed outputs, at times all with new functions, and fill the tables."""
        began, lsh, labels = time.clock_gettime(CLOCK), self.lsh, len(self.bias)
        ids = np.flatnonzero(self.thread.changed)
        if self.builds % lsh.rebuild == 0:
            ids = np.arange(labels)
            sizes = HIDDEN, lsh.hashes, lsh.tables, lsh.bits
            functions = draw(FAMILIES[lsh.family], *sizes, (lsh.seed << 16) + self.builds)
            self.finder = self.finder._replace(functions=functions)
        order = np.random.default_rng(self.builds).permutation(labels).astype(np.int32)
        functions, tables, sketches = self.finder[1:]
        hash_neurons(functions, sketches, self.weights, ids, self.thread.changed, self.codes)
        clear(tables, 0, lsh.tables)
        reservoir = lsh.insertion == "reservoir"
        insert(tables, 0, lsh.tables, self.codes, order, reservoir, self.builds)
        self.builds += 1
        self.building += time.clock_gettime(CLOCK) - began

    def train(self, train: Any, rows: NDArray[np.int64]) -> None:
        """Train with the compiled loop `train`; tables are rebuilt as in `HashTables`."""
        while len(rows):
            now = rows[: (self.due - int(self.model.steps[0])) * self.batch]
            began = time.clock_gettime(CLOCK)
            train(
                *(self.model, self.finder, self.rows.inputs, self.rows.labels, now, self.lease),
                *(self.hyper, self.thread, np.zeros(8, np.int64), self.totals),
            )
            self.seconds += time.clock_gettime(CLOCK) - began
            rows = rows[len(now) :]
            if self.model.steps[0] >= self.due:
                self.pause *= self.lsh.growth
                self.due += int(self.pause)
                self.build()

    def recall(self) -> dict[str, Any]:
        """Recall of the highest scores of some rows, and the fraction of candidates."""
        count = min(max(RECALL_ROWS // self.batch, 1) * self.batch, self.rows.rows)
        rows = np.random.default_rng(self.seed).permutation(self.rows.rows)[:count]
        inputs, labels, space = self.rows.inputs, self.rows.labels, self.thread.space
        data = inputs, labels, rows, self.batch
        room = loop.hashed_workspace(self.model, self.finder, *data, self.thread.head)
        sums = {each: np.zeros(len(TOPS)) for each in ("candidates", "found", "active")}
        held = 0
        for start in range(0, count, self.batch):
            part = rows[start : start + self.batch]
            x = forward(self.model, 1, inputs, part, room.hidden)
            active = room.active[: loop.find(self.finder, x, labels, part, self.thread, room)]
            clear_positions(active, len(active), self.thread.place)
            best = np.argsort(-(x @ self.weights.T + self.bias), axis=1)[:, : max(TOPS)]
            for b in range(len(part)):
                candidates = self.held(room.hashed.codes[b])
                held += len(candidates)
                groups = candidates, space.candidates[b, : space.sizes[b]], active
                for each, group in zip(sums.values(), groups, strict=True):
                    each += [np.isin(best[b, :top], group).mean() for top in TOPS]
        found: dict[str, Any] = {"candidates": round(held / count / len(self.bias), 5)}
        for n, top in enumerate(TOPS):
            found[f"top {top}"] = {
                each: round(float(of[n]) / count, 4) for each, of in sums.items()
            }
        return found

    def held(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The outputs in the buckets codes[L]."""
        buckets, counts = self.finder.tables
        tables = np.arange(len(codes))
        full = np.arange(buckets.shape[2]) < counts[tables, codes][:, np.newaxis]
        return np.unique(buckets[tables, codes][full])


def measure(rows: Examples, labels: int, given: argparse.Namespace) -> dict[str, Any]:
    """Train with and without clocks, in turn epoch by epoch; the first batch compiles."""
    clocked, nanoseconds = clocked_loop()
    plain, split = (HashedTraining(rows, labels, given) for _ in range(2))
    pairs = ((plain, loop.train), (split, clocked))
    for training, train in pairs:
        training.train(train, np.arange(min(given.batch, rows.rows)))
        training.forget_times()
    nanoseconds[:] = 0
    for epoch in range(given.epochs):
        order = epoch_order(rows.rows, given.seed, epoch)
        for training, train in pairs:
            training.train(train, order)
    done = float(split.totals[ROWS])
    seconds = dict(zip(PHASES, nanoseconds / 1e9, strict=True))
    seconds |= {"rest": split.seconds - sum(seconds.values()), "rebuild": split.building}
    active = split.totals[ACTIVE] / split.totals[UPDATES] / labels
    recall = {"at the end": split.recall()}
    split.build()
    recall["rebuilt"] = split.recall()
    return {
        "us_per_row": {name: round(float(each) / done * 1e6, 3) for name, each in seconds.items()},
        "rows_per_s": round(done / plain.seconds),
        "rows_per_s_rebuilding": round(done / (plain.seconds + plain.building)),
        "rows_per_s_clocked": round(done / split.seconds),
        "active": round(float(active), 5),
        "builds": split.builds - 1,
        "lsh": structs.asdict(split.lsh),
        "recall": recall,
    }


def table(found: dict[str, Any]) -> str:
    """Phases, speeds and recall as text."""
    spent = found["us_per_row"]
    whole = sum(spent.values())
    rows = [(name, f"{each:.2f}", f"{each / whole:.1%}") for name, each in spent.items()]
    head = ("phase", "us per row", "fraction")
    lines = [report.markdown(head, [*rows, ("sum", f"{whole:.2f}", "100%")]), ""]
    bare = f"{found['rows_per_s']:,} rows/s, {found['rows_per_s_rebuilding']:,} with rebuilding"
    lines.append(f"{bare}; {found['rows_per_s_clocked']:,} and {1e6 / whole:,.0f} with clocks")
    lines.append(f"{found['active']:.2%} of the outputs are active in an update")
    for when, recall in found["recall"].items():
        lines.append(f"{when}: {recall['candidates']:.2%} are candidates of a row")
        for top in TOPS:
            fractions = (
                f"{fraction:.3f} {each}" for each, fraction in recall[f"top {top}"].items()
            )
            lines.append(f"    of the {top} highest scores: {', '.join(fractions)}")
    return "\n".join(lines)


def rows_of(given: argparse.Namespace) -> tuple[Examples, int]:
    """The training rows and the number of labels."""
    if given.synthetic:
        return generate(given.synthetic)[0], given.synthetic.labels
    loaded = load(given.data, test_fraction=0.0)
    if loaded.encoding.kind != "multilabel":
        kind = loaded.encoding.kind
        raise UsageError(f"{given.data}: expected lists of labels; got {kind} labels")
    return loaded.train, loaded.encoding.outputs


def main(flags: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = arguments.parser("slide.split", __doc__)
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="FILE", help="training rows, XMC text")
    source.add_argument(
        "--synthetic", type=synthetic, metavar="NAME=NUMBER,...", help="generated data set"
    )
    add("--lsh", default="auto", metavar="FAMILY:KEY=VALUE,...", help="as in `hogbatch train`")
    add("--optimizer", choices=OPTIMIZERS, default="adagrad", help="update rule")
    add("--lr", type=float, default=0.05, help="learning rate (default: 0.05)")
    add("--batch", type=int, default=64, help="batch size (default: 64)")
    add("--epochs", type=int, default=3, help="number of epochs (default: 3)")
    add("--seed", type=int, default=0, help="random seed (default: 0)")
    arguments.add_json(parser)
    given = parser.parse_args(flags)
    if min(given.batch, given.epochs) < 1:
        parser.error("--batch and --epochs must be at least 1")
    try:
        found = measure(*rows_of(given), given)
    except HogbatchError as error:
        print(f"slide.split: {error}", file=sys.stderr)
        return 2
    print(table(found))
    report.write(given.json, [found], command=machine.without_directories(machine.command()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
