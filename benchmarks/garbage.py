"""What do a million garbage messages cost a training run?

One run trains on all cores (cpu:N). In alternating windows it is left alone, and flooded by a
process that sends garbage of every kind (benchmarks/common/garbage_messages.py) as fast as the
coordinator reads it, until a million messages have been sent. Both processes share the cores with
the training, so the sender's processor time is part of the cost. The coordinator reads about 2,000
garbage messages per second, so a million take 17 minutes.

    scripts/bench garbage --json out.json
    scripts/bench garbage --messages 10000 --seconds 2

Prints a JSON summary: the ratio of rows/s flooded to rows/s in the quiet windows before and after,
the processor time behind it, the coordinator's memory, and how long a valid message waits for its
answer. The requirement: no crash, memory growth below 5 MB, throughput loss below 5 %.
"""

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, report
from hogbatch.wire.address import Address, find
from hogbatch.wire.messages import Heartbeat
from hogbatch.wire.sockets import Dealer

ROOT = Path(__file__).parent.parent
HIDDEN = "256,256"
ENDLESS = ("--max-seconds", 10**6, "--eval-seconds", 10**6)
EVERY_S = 0.05  # between two valid messages
WARM_UP_S = 10.0


def started(*arguments: object) -> "subprocess.Popen[bytes]":
    """A Python process of this checkout."""
    return subprocess.Popen([sys.executable, "-m", *map(str, arguments)], cwd=ROOT)


def published(run_dir: Path, training: "subprocess.Popen[bytes]") -> Address:
    """The address of the run, once it trains."""
    while training.poll() is None:
        if (run_dir / "events.jsonl").exists() and rows_by_time(run_dir):
            return find(run_dir)
        time.sleep(0.1)
    raise SystemExit("garbage: the run ended before it started to train")


def rows_by_time(run_dir: Path) -> list[tuple[float, int]]:
    """(Unix seconds, rows) of every lease that was done."""
    text = (run_dir / "events.jsonl").read_text()
    events = [json.loads(line) for line in text.split("\n")[:-1] if '"lease"' in line]
    leases = [event for event in events if event["event"] == "lease"]
    return [(event["at"], event["rows"][1] - event["rows"][0]) for event in leases]


def private_megabytes(pid: int) -> float:
    """Private memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(s.split()[1]) / 1024 for s in status.splitlines() if s.startswith("RssAnon"))


class Probe(threading.Thread):
    """Sends valid messages to the coordinator, and measures the time to each answer.

    A Heartbeat from a sender that has not sent Hello is answered with Stop.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(daemon=True)
        self.waits: list[tuple[float, float]] = []  # (Unix seconds, seconds)
        self._address = address

    def run(self) -> None:
        end = Dealer(self._address.control, self._address.keys)
        while True:
            asked = time.time()
            end.send(Heartbeat())
            while end.receive() is None:
                end.wait(1.0)
            self.waits.append((asked, time.time() - asked))
            time.sleep(EVERY_S)


@contextmanager
def training(run_dir: Path, workers: str) -> Iterator["subprocess.Popen[bytes]"]:
    """An endless run of `hogbatch train`, without evaluations and checkpoints in between."""
    flags = ("--workers", workers, "--hidden", HIDDEN, "--checkpoint-seconds", 0)
    process = started("hogbatch.cli", "train", "a9a", "--run-dir", run_dir, *flags, *ENDLESS)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    """Processor time used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alternate(
    sender: "subprocess.Popen[bytes]", coordinator: int, seconds: float
) -> tuple[list[float], list[float]]:
    """Stop and continue `sender` in turn until it has finished.

    Returns the edges of all windows, and the processor time that the coordinator had used by each
    of them. The 1st, 3rd, ... windows and the last are quiet.
    """
    edges, used = [time.time()], [cpu_seconds(coordinator)]

    def note() -> None:
        edges.append(time.time())
        used.append(cpu_seconds(coordinator))

    while sender.poll() is None:
        sender.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        note()
        sender.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            sender.wait(seconds)
        note()
    time.sleep(seconds)
    note()
    return edges, used


def load(edges: list[float], used: list[float]) -> dict[str, float]:
    """Processor time per second of the coordinator, quiet and flooded."""
    spent = [(b - a, d - c) for (a, b), (c, d) in zip(pairwise(edges), pairwise(used), strict=True)]
    return {
        name: sum(cpu for _, cpu in part) / sum(seconds for seconds, _ in part)
        for name, part in (("quiet", spent[::2]), ("flooded", spent[1::2]))
    }


def rates(leases: list[tuple[float, int]], edges: list[float]) -> list[float]:
    """Rows per second in each window."""
    return [
        sum(rows for at, rows in leases if start <= at < stop) / (stop - start)
        for start, stop in pairwise(edges)
    ]


def ratios(speeds: list[float]) -> list[float]:
    """The ratio of each flooded window to the mean of the quiet windows before and after it."""
    return [2 * speeds[n] / (speeds[n - 1] + speeds[n + 1]) for n in range(1, len(speeds) - 1, 2)]


def flooded(edges: list[float], moment: float) -> bool:
    """Whether `moment` is in a flooded window."""
    window = bisect(edges, moment)
    return 0 < window < len(edges) and window % 2 == 0


def milliseconds(waits: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(1e3 * wait for wait in waits)
    return {
        "median": statistics.median(ordered),
        "p99": ordered[len(ordered) * 99 // 100],
        "max": ordered[-1],
    }


def measure(messages: int, seconds: float, workers: str, run_dir: Path) -> dict[str, Any]:
    """Train, flood every other window, and compute the cost."""
    with training(run_dir, workers) as run:
        address = published(run_dir, run)
        probe = Probe(address)
        probe.start()
        time.sleep(WARM_UP_S)
        before = private_megabytes(run.pid)
        sender = started("benchmarks.common.garbage_messages", address.control, messages)
        edges, used = alternate(sender, run.pid, seconds)
        sent = resource.getrusage(
            resource.RUSAGE_CHILDREN
        )  # of the sender, the only child that has exited
        after = private_megabytes(run.pid)
        leases, crashed = rows_by_time(run_dir), run.poll() is not None
    speeds = rates(leases, edges)
    waits: dict[bool, list[float]] = {True: [], False: []}
    for asked, wait in probe.waits:
        waits[flooded(edges, asked)].append(wait)
    flooded_seconds = sum(b - a for a, b in list(pairwise(edges))[1::2])
    of_sender = (sent.ru_utime + sent.ru_stime) / flooded_seconds
    faults = json.loads((run_dir / "summary.json").read_text())["faults"]
    return {
        "messages": messages,
        "sender_exit_code": sender.returncode,
        "crashed": crashed,
        "faults": faults,
        "flooded_seconds": flooded_seconds,
        "cores_used": {"coordinator": load(edges, used), "sender": of_sender},
        "rows_per_second": {"quiet": speeds[::2], "flooded": speeds[1::2]},
        "ratios": ratios(speeds),
        "median_ratio": statistics.median(ratios(speeds)),
        "coordinator_mb": {"before": before, "after": after, "growth": after - before},
        "answer_ms": {"quiet": milliseconds(waits[False]), "flooded": milliseconds(waits[True])},
    }


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("garbage", __doc__)
    add = parser.add_argument
    add("--messages", type=int, default=1_000_000, help="number of messages (default: 1000000)")
    add("--seconds", type=float, default=10.0, help="duration of each window (default: 10)")
    workers = f"cpu:{len(os.sched_getaffinity(0))}"
    add("--workers", default=workers, help=f"workers of the run (default: {workers})")
    arguments.add_json(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(given.messages, given.seconds, given.workers, Path(folder) / "run")
    print(json.dumps({k: v for k, v in result.items() if k != "ratios"}, indent=2))
    report.write(given.json, [result], workers=given.workers, hidden=HIDDEN)


if __name__ == "__main__":
    main()
