"""What does it take to move a model to a worker and back: over shared memory, pickle, gRPC?

A round begins when the coordinator has new parameters (float32) and ends when it can read what the
worker made of them. Both sides must have an array that they can compute on; what the worker wrote
is compared every time. Coordinator and worker are two processes on this machine.

shared   hogbatch's data plane as CPU workers use it: nothing is copied, a message goes each way
replica  the same, as GPU workers use it, without the device: pulled, and the change merged
socket   a Unix stream socket: what copying through the kernel takes at least
pickle   pickle protocol 5 over ZeroMQ
grpc     gRPC over a Unix socket, bytes without protobuf

First every plane's candidates (pieces, options, memory allocation) are tried for each size, then
the best of each plane are measured in turn, one round at a time. 512 MB take some 8 GB of memory.

    scripts/bench planes --json out.json

The bar is that of "RPC Considered Harmful" (Xue et al. 2018, arXiv 1805.08430), up to 25 times the
speed of TensorFlow over gRPC: for 64 MB, grpc over shared is to be at least 25.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import about
from transports import PLANES, installed
from transports.contract import FLOATS_PER_MB, Setting
from transports.pair import pair

OURS = ("shared", "replica")
WARM_UP = 2  # rounds that do not count


def tune(plane: str, megabytes: int, rounds: int) -> tuple[Setting, list[dict[str, Any]]]:
    """The candidate with the lowest median, and what each took."""
    candidates, tried = PLANES[plane].candidates, []
    for setting in candidates if len(candidates) > 1 else ():
        with pair(plane, megabytes * FLOATS_PER_MB, setting) as move:
            move(WARM_UP)
            tried.append({"setting": setting, "ms": 1e3 * statistics.median(move(rounds))})
            print(f"{megabytes} MB, {plane}: {tried[-1]}", flush=True)
    best = min(tried, key=lambda each: each["ms"])["setting"] if tried else candidates[0]
    return best, tried


def measure(best: dict[str, Setting], megabytes: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every round, by plane; the planes take turns, in an order by chance."""
    order, milliseconds = random.Random(0), {plane: [] for plane in best}
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
    """One result a plane; "over" is its median by that of each of ours."""
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
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
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
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(results: list[dict[str, Any]]) -> str:
    """What gRPC takes by what ours take, a line a size."""
    return "\n".join(
        f"{result['megabytes']} MB: grpc / {name} = {ratio:.3g}"
        for result in results
        if result["plane"] == "grpc"
        for name, ratio in result["over"].items()
    )


def present(planes: Sequence[str]) -> dict[str, str]:
    """Version by package of those planes that can be measured; says which can not."""
    versions = {}
    for plane, version in installed(planes):
        package = PLANES[plane].package
        if version is None:
            print(f"{plane} left out: {package} is not installed; pip install {package}")
        else:
            versions[plane] = version
    return versions


def names(text: str) -> list[str]:
    """An argparse type: planes, separated by commas."""
    if unknown := set(text.split(",")) - set(PLANES):
        raise argparse.ArgumentTypeError(
            f"expected names out of {', '.join(PLANES)}; got {', '.join(sorted(unknown))}"
        )
    return text.split(",")


def sizes(text: str) -> list[int]:
    """An argparse type: megabytes, separated by commas."""
    if not all(part.isdecimal() and int(part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"expected whole megabytes, as 8,64; got {text}")
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Tune, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=sizes, default=[8, 64, 512], help="comma-separated")
    parser.add_argument("--planes", type=names, default=list(PLANES), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=25, help="of each plane and size")
    parser.add_argument("--tuning-rounds", type=int, default=5, help="of each candidate")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    versions, results = present(arguments.planes), []
    for megabytes in arguments.megabytes:
        tuned = {plane: tune(plane, megabytes, arguments.tuning_rounds) for plane in versions}
        best = {plane: setting for plane, (setting, _) in tuned.items()}
        milliseconds = measure(best, megabytes, arguments.rounds)
        results += results_of(milliseconds, megabytes, tuned)
    print(table(results), ratios(results), sep="\n")
    packages = {PLANES[plane].package: version for plane, version in versions.items()}
    settings = {name: getattr(arguments, name) for name in ("rounds", "tuning_rounds")}
    about.write(
        arguments.json, results, versions=about.machine()["versions"] | packages, **settings
    )


if __name__ == "__main__":
    main()
