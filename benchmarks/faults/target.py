"""The delay of a test loss if a worker is killed every two seconds."""

import os
import signal
import statistics
from contextlib import suppress
from random import Random
from typing import Any

from benchmarks.common.watched_run import ENDLESS, WatchedRun, watched
from hogbatch.events.event import Evaluation, Event, WorkerReady

WORKERS = ("--workers", "cpu:1,cpu:1")
OFTEN = ("--eval-seconds", 0.5)
# a9a by plain SGD at a rate that needs half a minute to the target.
FLAGS = ("a9a", "--hidden", "512,512", "--optimizer", "sgd", "--lr", 0.0001)
TARGET = 0.33


def measure(seeds: int, seconds: float, every: float) -> dict[str, Any]:
    """Training seconds, and seconds since the first lease, without and with kills, by seed."""
    pairs = list[dict[str, Any]]()
    for seed in range(seeds):
        flags = (*FLAGS, *WORKERS, *OFTEN, *ENDLESS, "--target-loss", TARGET, "--seed", seed)
        pair: dict[str, Any] = {"seed": seed, "undisturbed": reach(flags, None, seconds, every)}
        pair["killed"] = reach(flags, Random(seed), seconds, every)
        for clock in ("train_seconds", "wall_seconds"):
            pair[f"ratio_{clock}"] = round(pair["killed"][clock] / pair["undisturbed"][clock], 3)
        print(pair, flush=True)
        pairs.append(pair)
    ratios = [pair["ratio_wall_seconds"] for pair in pairs]
    return {
        "question": "time to the loss under kills",
        "median_ratio": statistics.median(ratios),
        "worst_ratio": max(ratios),
        "pairs": pairs,
    }


def reach(
    flags: tuple[object, ...], rng: Random | None, seconds: float, every: float
) -> dict[str, Any]:
    """One run to the target; with `rng`, a worker is killed every `every` seconds, for at most
    `seconds` seconds.
    """
    with watched() as run:
        run.start(*flags)
        kills = strike(run, rng, seconds, every) if rng else 0
        code = run.finish()
        summary, events = run.summary(), run.log.next_life()
        return {
            "exit_code": code,
            "status": summary["status"],
            "kills": kills,
            "train_seconds": round(summary["train_seconds"], 3),
            "wall_seconds": round(last(events, Evaluation) - first(events, WorkerReady), 3),
            "test_loss": summary["validation"]["loss"],
            "workers_lost": summary["faults"]["workers_lost"],
            "model_finite": run.model_is_finite(),
        }


def strike(run: WatchedRun, rng: Random, seconds: float, every: float) -> int:
    """Kill random workers until the run has ended or `seconds` have passed; the number of kills."""
    kills = 0
    while kills * every < seconds and not run.ends_within(every):
        pids = sorted(run.log.at_work().values())
        if pids:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(pids), signal.SIGKILL)
            kills += 1
    return kills


def first(events: list[Event], kind: type[Event]) -> float:
    """Unix seconds of the first event of this kind."""
    return next(event.at for event in events if isinstance(event, kind))


def last(events: list[Event], kind: type[Event]) -> float:
    """Unix seconds of the last event of this kind."""
    return first(events[::-1], kind)
