"""Several servers beside one: rows and training seconds to a target, and what merges cost.

    scripts/bench several_servers --data DIR --seeds 3 --json out.json

Starts a Ray cluster on this machine (`ray.cluster_utils.Cluster`) whose nodes have one core each,
trains on them, and in turn on one server with as many threads as there are nodes. Rows and seconds
are interpolated between the evaluations before and after the target. Then it trains for a fixed
time with merges as usual and without any, in turn: the ratio of their rows per second is what
merges cost.

DIR holds covtype.csv.gz and citeulike-{train,test}.xmc.gz.
"""

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ray.cluster_utils import Cluster

from benchmarks.common import arguments, report
from benchmarks.common.arrival import arrival
from benchmarks.common.cases import CASES, Case
from benchmarks.common.data_sets import DIRECTORY_HELP, TASKS
from benchmarks.common.hogbatch_run import train

OBJECT_STORE = 2 << 30  # bytes, of each node
NEVER = str(1 << 40)  # rows between two merges
LIMIT_S = 300.0  # of a run


class Problem(NamedTuple):
    """A case and how long to train it."""

    case: Case
    seconds: float  # of training, at most


PROBLEMS = {
    # 64 MB of parameters, to measure what merges cost: with --seeds 0
    "large": Problem(Case(replace(TASKS["covtype"], hidden=(4000, 3950))), 15.0),
    "covtype": Problem(CASES["covtype"], 60.0),
    "citeulike": Problem(CASES["citeulike"], 6.0),
}


def run(options: argparse.Namespace, name: str, seed: int, flags: list[str]) -> dict[str, Any]:
    """One run: its rows and seconds to the target, its merges, and its history."""
    case, seconds = PROBLEMS[name]
    target = [] if case.metric else ["--target-loss", str(case.task.target)]
    limits = ["--max-seconds", str(options.seconds or seconds), "--seed", str(seed)]
    done = train([*case.task.flags(options.data), *target, *limits, *flags], LIMIT_S)
    if done.error:
        sys.exit(f"{name}, seed {seed}, {' '.join(flags)}: {done.error}")
    summary = done.summary
    reached = arrival(case.points(done.history), case.task.target)
    return {
        "set": name,
        "seed": seed,
        "flags": [each for each in flags if ":" not in each],  # without the address
        "rows": reached and reached.rows,
        "seconds": reached and reached.seconds,
        "rows_per_second": summary["rows"] / summary["train_seconds"],
        "history": [
            [each["rows"], each["seconds"], each["test_loss"], each["test_value"]]
            for each in done.history
        ],
    }


def measure(
    options: argparse.Namespace, name: str, seed: int, cluster: list[str]
) -> dict[str, Any]:
    """One server and several, with the same seed."""
    one = run(options, name, seed, ["--workers", f"cpu:{options.nodes}"])
    several = run(options, name, seed, [*cluster, *options.flags])
    ratios = {
        f"{key}_ratio": several[key] / one[key]
        for key in ("rows", "seconds")
        if several.get(key) and one.get(key)
    }
    return {"set": name, "seed": seed, **ratios, "one": one, "several": several}


def cost_of_merges(options: argparse.Namespace, name: str, cluster: list[str]) -> dict[str, Any]:
    """Rows per second with merges over those without, of runs in turn."""
    pairs = []
    for seed in range(options.pairs):
        usual = run(options, name, seed, [*cluster, *options.flags])
        never = run(options, name, seed, [*cluster, *options.flags, "--merge-rows", NEVER])
        pairs.append(usual["rows_per_second"] / never["rows_per_second"])
    return {"set": name, "pairs": pairs, "median": statistics.median(pairs) if pairs else None}


def table(results: list[dict[str, Any]]) -> str:
    """Ratios by data set and seed."""
    rows = [
        [
            each["set"],
            str(each["seed"]),
            *(
                f"{each[key]:.2f}" if key in each else "-"
                for key in ("rows_ratio", "seconds_ratio")
            ),
        ]
        for each in results
    ]
    return report.markdown(["set", "seed", "rows, several over one", "seconds"], rows)


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("several_servers", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help=DIRECTORY_HELP)
    add("--sets", type=arguments.names(PROBLEMS), default=["covtype", "citeulike"], help="problems")
    add("--nodes", type=arguments.positive(int), default=2, help="servers (default: 2)")
    add("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    add("--pairs", type=int, default=3, help="pairs of runs with and without merges (default: 3)")
    add("--seconds", type=float, help="training seconds of a run (default: by data set)")
    add("--flags", nargs=argparse.REMAINDER, default=[], help="further flags of hogbatch train")
    arguments.add_json(parser)
    options = parser.parse_args()
    node_options: dict[str, Any] = {
        "num_cpus": 1,
        "object_store_memory": OBJECT_STORE,
        "include_dashboard": False,
    }
    nodes = Cluster(initialize_head=True, head_node_args=node_options)
    for _ in range(1, options.nodes):
        nodes.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    cluster = ["--cluster", str(nodes.address), "--servers", str(options.nodes)]
    results, costs = [], []
    try:
        for name in options.sets:
            for seed in range(options.seeds):
                results.append(measure(options, name, seed, cluster))
                print(table(results[-1:]).splitlines()[-1], flush=True)
            costs.append(cost_of_merges(options, name, cluster))
            print(f"{name}: rows per second with merges over those without: {costs[-1]['pairs']}")
    finally:
        nodes.shutdown()  # type: ignore[no-untyped-call]
    print(table(results))
    report.write(options.json, results, merges=costs, nodes=options.nodes, flags=options.flags)


if __name__ == "__main__":
    main()
