"""How long does a merge of two servers take: NIXL, Ray's object store, pickle over gRPC?

Both servers are processes on this machine. Each has a change of the model, float32, in its own
memory. A merge starts at the same moment on both, and ends when both have the sum of both changes
in an array of their own, of which some numbers are checked every time.

nixl      hogbatch's exchange over NIXL, as UCX chooses: shared memory on one machine
nixl-tcp  the same over TCP (UCX_TLS=tcp)
ray       Ray's object store: arrays are put there, and read by the other actor without a copy
grpc      pickle protocol 5 over gRPC over a Unix socket, as one message or in a stream

First the settings of each way are tried. Then the best of each are measured in several blocks, in
which the ways take turns in a random order, each with processes of its own.

For NIXL, transfers of several sizes in both directions at the same time are measured too. The
link that explains them (hogbatch/cluster/link.py) gives the time of a merge that `hogbatch plan`
predicts, which is compared with the measured one.

    scripts/bench merges --json out.json

The goal: ray over nixl at least 3, and grpc over nixl at least 10.
"""

import os
import random
import statistics
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from benchmarks.common import arguments, machine, report
from benchmarks.merges.contract import FLOATS_PER_MB, Group, Setting
from benchmarks.merges.processes import Processes
from benchmarks.merges.ways import WAYS, missing
from hogbatch.cluster.estimate import Task, merge_of
from hogbatch.cluster.link import fit

OURS: Final = "nixl"
WARM_UP: Final = 3  # merges, not counted
TRANSFERS: Final = (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 25)  # bytes, at most half of a model
EACH: Final = 8  # transfers of each size in a block


def merges(group: Group, rounds: int, first: int = 2) -> list[float]:
    """Milliseconds of `rounds` merges after some that are not counted."""
    numbers = range(first, first + WARM_UP + rounds)
    return [1e3 * group.merge(number) for number in numbers][WARM_UP:]


def tune(way: str, count: int, rounds: int) -> tuple[Setting, list[dict[str, Any]]]:
    """The setting with the lowest median, and the medians of all."""
    candidates, tried = WAYS[way].candidates, list[dict[str, Any]]()
    for setting in candidates if len(candidates) > 1 else ():
        with closing(WAYS[way].start(count, setting)) as group:
            tried.append({"setting": setting, "ms": statistics.median(merges(group, rounds))})
        print(f"{way}: {tried[-1]}", flush=True)
    best = min(tried, key=lambda each: each["ms"])["setting"] if tried else candidates[0]
    return best, tried


def measure_transfers(group: Group, count: int) -> list[tuple[int, float]]:
    """(bytes, seconds) of transfers in both directions at the same time."""
    if not isinstance(group, Processes):
        return []
    sizes = [size for size in TRANSFERS if size <= 2 * count]
    return [(size, group.transfer(size)) for size in sizes for _ in range(EACH)]


def predicted(transfers: Sequence[tuple[int, float]], count: int) -> dict[str, float]:
    """The link that explains the median of each size, and the predicted time of a merge."""
    sizes = sorted({size for size, _ in transfers})
    medians = [
        (size, statistics.median(seconds for each, seconds in transfers if each == size))
        for size in sizes
    ]
    link = fit(medians)
    merge = merge_of(Task(count, rows=1, rows_per_second=1.0, merges_per_epoch=1.0), 2, link)
    return {
        "latency_us": 1e6 * link.latency,
        "gigabytes_per_second": 1e-9 * link.speed,
        "predicted_ms": 1e3 * merge.seconds,
    }


def measure(
    best: dict[str, Setting], count: int, blocks: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[tuple[int, float]]]]:
    """Milliseconds of all merges, and (bytes, seconds) of all transfers, by way."""
    order = random.Random(0)
    times = {way: list[float]() for way in best}
    transfers = {way: list[tuple[int, float]]() for way in best}
    for block in range(blocks):
        for way in order.sample(list(best), len(best)):
            with closing(WAYS[way].start(count, best[way])) as group:
                times[way] += merges(group, rounds)
                if way.startswith(OURS):
                    transfers[way] += measure_transfers(group, count)
            median = statistics.median(times[way][-rounds:])
            print(f"block {block + 1}, {way}: {median:.3g} ms", flush=True)
    return times, transfers


def results_of(
    times: dict[str, list[float]],
    transfers: dict[str, list[tuple[int, float]]],
    tuned: dict[str, tuple[Setting, list[dict[str, Any]]]],
    count: int,
) -> list[dict[str, Any]]:
    """One result per way; "over" is the ratio of its median to that of OURS."""
    medians = {way: statistics.median(all_) for way, all_ in times.items()}
    results = []
    for way, all_ in times.items():
        result: dict[str, Any] = {
            "way": way,
            "ms": medians[way],
            "min_ms": min(all_),
            "max_ms": max(all_),
            "over": medians[way] / medians[OURS] if OURS in medians else None,
            "setting": tuned[way][0],
            "tried": tuned[way][1],
            "all_ms": all_,
        }
        if transfers[way]:
            link = predicted(transfers[way], count)
            ratio = link["predicted_ms"] / medians[way]
            result |= {"transfers": transfers[way], "link": link, "predicted_over_measured": ratio}
        results.append(result)
    return results


def table(results: Sequence[dict[str, Any]]) -> str:
    """Milliseconds by way."""
    columns = ("way", "ms", "min..max", f"over {OURS}", "predicted ms", "predicted / measured")
    rows = []
    for each in results:
        ratio, link = each.get("predicted_over_measured"), each.get("link")
        rows.append(
            [
                each["way"],
                f"{each['ms']:.3g}",
                f"{each['min_ms']:.3g}..{each['max_ms']:.3g}",
                "-" if each["over"] is None else f"{each['over']:.3g}",
                f"{link['predicted_ms']:.3g}" if link else "-",
                f"{ratio:.2g}" if ratio else "-",
            ]
        )
    return report.markdown(columns, rows)


def main(flags: Sequence[str] | None = None) -> None:
    """Tune, measure and print."""
    parser = arguments.parser("merges", __doc__)
    add, whole = parser.add_argument, arguments.positive(int)
    add("--megabytes", type=whole, default=64, help="size of the model (default: 64)")
    add("--ways", type=arguments.names(WAYS), default=list(WAYS), help=", ".join(WAYS))
    add("--blocks", type=whole, default=5, help="blocks of measurements (default: 5)")
    add("--rounds", type=whole, default=10, help="merges per way and block (default: 10)")
    add("--tuning-rounds", type=whole, default=7, help="merges per setting (default: 7)")
    arguments.add_json(parser)
    given = parser.parse_args(flags)
    for way in filter(missing, given.ways):
        print(f"skipping {way}: {WAYS[way].package} is not installed")
    ways, count = [way for way in given.ways if not missing(way)], given.megabytes * FLOATS_PER_MB
    tuned = {way: tune(way, count, given.tuning_rounds) for way in ways}
    best = {way: setting for way, (setting, _) in tuned.items()}
    times, transfers = measure(best, count, given.blocks, given.rounds)
    results = results_of(times, transfers, tuned, count)
    print(table(results))
    report.write(
        given.json,
        results,
        versions=machine.describe()["versions"] | machine.versions("nixl", "ray", "grpcio"),
        megabytes=given.megabytes,
        blocks=given.blocks,
        rounds=given.rounds,
        load_average=os.getloadavg(),  # of 1, 5 and 15 minutes, at the end
    )


if __name__ == "__main__":
    main()
