"""How long does moving a model to a worker and back take: shared memory, pickle, gRPC?

A round starts when the coordinator has new parameters (float32) and ends when it can read the
worker's result. Both sides must have an array that they can compute on; the worker's result is
checked every time. Coordinator and worker are two processes on this machine.

shared   hogbatch's data plane as CPU workers use it: nothing is copied, one message each way
replica  the same as GPU workers use it, without the device: pull, and merge of the change
socket   a Unix stream socket: the lower bound of copying through the kernel
pickle   pickle protocol 5 over ZeroMQ
grpc     gRPC over a Unix socket, bytes without protobuf

First the candidates of every plane (pieces, options, memory allocation) are tried for each size.
Then the best of each plane are measured in turn, one round at a time. 512 MB need about 8 GB of
memory.

    scripts/bench planes --json out.json

Prints a table of milliseconds per round and the ratios of gRPC to hogbatch's planes. The goal is
the factor of "RPC Considered Harmful" (Xue et al. 2018, arXiv 1805.08430), up to 25 times the speed
of TensorFlow over gRPC: for 64 MB, grpc over shared should be at least 25.
"""

import random
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.common import arguments, machine, report
from benchmarks.planes.candidates import PLANES, installed
from benchmarks.planes.contract import FLOATS_PER_MB, Setting
from benchmarks.planes.pair import pair

OURS = ("shared", "replica")
WARM_UP = 2  # rounds, not counted


def tune(plane: str, megabytes: int, rounds: int) -> tuple[Setting, list[dict[str, Any]]]:
    """The candidate with the lowest median, and the times of all candidates."""
    candidates, tried = PLANES[plane].candidates, list[dict[str, Any]]()
    for setting in candidates if len(candidates) > 1 else ():
        with pair(plane, megabytes * FLOATS_PER_MB, setting) as move:
            move(WARM_UP)
            tried.append({"setting": setting, "ms": 1e3 * statistics.median(move(rounds))})
            print(f"{megabytes} MB, {plane}: {tried[-1]}", flush=True)
    best = min(tried, key=lambda each: each["ms"])["setting"] if tried else candidates[0]
    return best, tried


def measure(best: dict[str, Setting], megabytes: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every round, by plane; planes take turns in a random order."""
    order, milliseconds = random.Random(0), {plane: list[float]() for plane in best}
    with ExitStack() as ends:
        moves = {
            plane: ends.enter_context(pair(plane, megabytes * FLOATS_PER_MB, setting))
            for plane, setting in best.items()
        }
        for move in moves.values():
            move(WARM_UP)
        for _ in range(rounds):
            for plane in order.sample(list(moves), len(moves)):
                milliseconds[plane] += [1e3 * seconds for seconds in moves[plane](1)]
    return milliseconds


def results_of(
    milliseconds: dict[str, list[float]],
    megabytes: int,
    tuned: dict[str, tuple[Setting, list[dict[str, Any]]]],
) -> list[dict[str, Any]]:
    """One result per plane; "over" is the ratio of its median to that of each of OURS."""
    medians = {plane: statistics.median(all_) for plane, all_ in milliseconds.items()}
    return [
        {
            "megabytes": megabytes,
            "plane": plane,
            "ms": medians[plane],
            "min_ms": min(all_),
            "max_ms": max(all_),
            "over": {name: medians[plane] / medians[name] for name in OURS if name in medians},
            "setting": tuned[plane][0],
            "tried": tuned[plane][1],
            "all_ms": all_,
        }
        for plane, all_ in milliseconds.items()
    ]


def table(results: list[dict[str, Any]]) -> str:
    """Milliseconds by size and plane."""
    columns = ("MB", "plane", "ms", "min..max", *(f"over {name}" for name in OURS), "setting")
    rows = []
    for result in results:
        over = [result["over"].get(name) for name in OURS]
        setting = ", ".join(f"{key} {value}" for key, value in result["setting"].items())
        cells = [
            str(result["megabytes"]),
            result["plane"],
            f"{result['ms']:.3g}",
            f"{result['min_ms']:.3g}..{result['max_ms']:.3g}",
            *("-" if ratio is None else f"{ratio:.3g}" for ratio in over),
            setting,
        ]
        rows.append(cells)
    return report.markdown(columns, rows)


def ratios(results: list[dict[str, Any]]) -> str:
    """Ratios of gRPC's median to those of OURS, one line per size."""
    return "\n".join(
        f"{result['megabytes']} MB: grpc / {name} = {ratio:.3g}"
        for result in results
        if result["plane"] == "grpc"
        for name, ratio in result["over"].items()
    )


def present(planes: Sequence[str]) -> dict[str, str]:
    """Versions by plane of those planes that can be measured; prints which cannot."""
    versions = {}
    for plane, version in installed(planes):
        package = PLANES[plane].package
        if version is None:
            print(f"skipping {plane}: {package} is not installed; pip install {package}")
        else:
            versions[plane] = version
    return versions


def main(flags: Sequence[str] | None = None) -> None:
    """Tune, measure and print."""
    parser = arguments.parser("planes", __doc__)
    add, planes, whole = parser.add_argument, list(PLANES), arguments.positive(int)
    add(
        "--megabytes",
        type=arguments.positive_list,
        default=[8, 64, 512],
        help="sizes of the model, comma-separated (default: 8,64,512)",
    )
    add("--planes", type=arguments.names(planes), default=planes, help=", ".join(planes))
    add("--rounds", type=whole, default=25, help="rounds per plane and size (default: 25)")
    add("--tuning-rounds", type=whole, default=5, help="rounds per candidate (default: 5)")
    arguments.add_json(parser)
    given = parser.parse_args(flags)
    versions, results = present(given.planes), list[dict[str, Any]]()
    for megabytes in given.megabytes:
        tuned = {plane: tune(plane, megabytes, given.tuning_rounds) for plane in versions}
        best = {plane: setting for plane, (setting, _) in tuned.items()}
        milliseconds = measure(best, megabytes, given.rounds)
        results += results_of(milliseconds, megabytes, tuned)
    print(table(results), ratios(results), sep="\n")
    packages = {PLANES[plane].package: version for plane, version in versions.items()}
    report.write(
        given.json,
        results,
        versions=machine.describe()["versions"] | packages,
        rounds=given.rounds,
        tuning_rounds=given.tuning_rounds,
    )


if __name__ == "__main__":
    main()
