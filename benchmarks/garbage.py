"""What do a million garbage messages cost a training run?

One run on all cores (cpu:N). Again and again it is left alone for a while, and then flooded for as
long by a process that sends garbage of every kind (tests/garbage.py) as fast as it is let, until a
million messages have been sent. Both processes share the cores with the training, so what the
sender takes counts too. Reported are the rows/s flooded by those in the quiet windows beside it,
the processor time behind that, the coordinator's memory, and how long an honest message waits for
its answer. The coordinator reads some 2,000 of them a second, so a million take 17 minutes.

    scripts/bench garbage --json out.json

The bar: no crash, memory growth below 5 MB, throughput loss below 5 %.
"""

import argparse
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

import about

from hogbatch.wire.address import Address, find
from hogbatch.wire.messages import Heartbeat
from hogbatch.wire.sockets import Dealer

ROOT = Path(__file__).parent.parent
HIDDEN = "256,256"
ENDLESS = ("--max-seconds", 10**6, "--eval-seconds", 10**6)
EVERY_S = 0.05  # between two honest messages
WARM_UP_S = 10.0


def started(*arguments: object) -> "subprocess.Popen[bytes]":
    """A Python process of this checkout."""
    return subprocess.Popen([sys.executable, "-m", *map(str, arguments)], cwd=ROOT)


def published(run_dir: Path, training: "subprocess.Popen[bytes]") -> Address:
    """The address of the run, once its coordinator has one."""
    while training.poll() is None:
        if (run_dir / "events.jsonl").exists() and rows_by_time(run_dir):
            return find(run_dir)
        time.sleep(0.1)
    raise SystemExit("the run has ended before it began to train")


def rows_by_time(run_dir: Path) -> list[tuple[float, int]]:
    """(wall clock, rows) of every lease that has been done."""
    text = (run_dir / "events.jsonl").read_text()
    events = [json.loads(line) for line in text.split("\n")[:-1] if '"lease"' in line]
    leases = [event for event in events if event["event"] == "lease"]
    return [(event["at"], event["rows"][1] - event["rows"][0]) for event in leases]


def private_megabytes(pid: int) -> float:
    """Memory of a process that it shares with nobody."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(s.split()[1]) / 1024 for s in status.splitlines() if s.startswith("RssAnon"))


class Probe(threading.Thread):
    """Asks the coordinator for an answer again and again, and notes how long it takes.

    A Heartbeat from somebody who has not said Hello is answered with Stop.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(daemon=True)
        self.waits: list[tuple[float, float]] = []  # (wall clock, seconds)
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
    """`hogbatch train` without an end, and without evaluations and checkpoints in between."""
    flags = ("--workers", workers, "--hidden", HIDDEN, "--checkpoint-seconds", 0)
    process = started("hogbatch.cli", "train", "a9a", "--run-dir", run_dir, *flags, *ENDLESS)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alternate(
    sender: "subprocess.Popen[bytes]", coordinator: int, seconds: float
) -> tuple[list[float], list[float]]:
    """Let `sender` run and stand still in turn until it is through.

    Returns the ends of all windows and what processor time the coordinator had used by then: the
    1st, 3rd, ... windows are quiet, and so is the last.
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
    """Processor time a second of the coordinator, quiet and flooded."""
    spent = [(b - a, d - c) for (a, b), (c, d) in zip(pairwise(edges), pairwise(used), strict=True)]
    return {
        name: sum(cpu for _, cpu in part) / sum(seconds for seconds, _ in part)
        for name, part in (("quiet", spent[::2]), ("flooded", spent[1::2]))
    }


def rates(leases: list[tuple[float, int]], edges: list[float]) -> list[float]:
    """Rows a second in each window."""
    return [
        sum(rows for at, rows in leases if start <= at < stop) / (stop - start)
        for start, stop in pairwise(edges)
    ]


def ratios(speeds: list[float]) -> list[float]:
    """Each flooded window by the mean of the quiet ones before and after it."""
    return [2 * speeds[n] / (speeds[n - 1] + speeds[n + 1]) for n in range(1, len(speeds) - 1, 2)]


def flooded(edges: list[float], moment: float) -> bool:
    """Whether `moment` lies in a flooded window."""
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
    """Train, flood in turns, and say what it cost."""
    with training(run_dir, workers) as run:
        address = published(run_dir, run)
        probe = Probe(address)
        probe.start()
        time.sleep(WARM_UP_S)
        before = private_megabytes(run.pid)
        sender = started("tests.garbage", address.control, messages)
        edges, used = alternate(sender, run.pid, seconds)
        sent = resource.getrusage(resource.RUSAGE_CHILDREN)  # of the sender: none else has ended
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each window")
    parser.add_argument("--workers", default=f"cpu:{len(os.sched_getaffinity(0))}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        result = measure(arguments.messages, arguments.seconds, arguments.workers, run_dir)
    print(json.dumps({k: v for k, v in result.items() if k != "ratios"}, indent=2))
    about.write(arguments.json, [result], workers=arguments.workers, hidden=HIDDEN)


if __name__ == "__main__":
    main()
