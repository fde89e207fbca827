"""Is every row done once if workers are killed, and how long does it take to redo their rows?"""

import os
import signal
import time
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.run_history import Life, audit
from benchmarks.common.watched_run import ENDLESS, ROWS, WatchedRun, watched
from benchmarks.faults.figures import spread
from hogbatch.events.event import Event, LeaseDone, OfWorker, WorkerLeft, WorkerLost
from hogbatch.run.launch.restarts import MAX_RECENT
from hogbatch.store.attach import attach_segments

FLAGS = ("a9a", "--hidden", "256,256", *ENDLESS, "--lease-ms", 20, "--eval-seconds", 1e6)
WORKERS = ("--workers", "cpu:1,cpu:1")
LEASE_WITHIN_S = 60.0

W = TypeVar("W", bound=OfWorker)


def measure(times: int, seed: int) -> dict[str, Any]:
    """Kill one of two workers until `times` killed workers held a lease; seconds since the kill.

    Kills of workers without a lease, as between two epochs, are recorded but not counted: they
    leave no rows to redo. `first again` is when the first of the lost rows were acknowledged by
    another worker, which is later than when they were handed out; `done again` is when the last
    were, because they are handed out batch by batch. Evaluations are excluded: their leases are in
    no ledger of rows. RuntimeError if no killed worker holds a lease within LEASE_WITHIN_S.
    """
    rng, kills, runs = Random(seed), list[dict[str, Any]](), list[dict[str, Any]]()
    while counted(kills) < times:
        runs.append(disturbed_run(times, rng, kills))
    delays = ("detected", "given back", "first again", "done again", "training again")
    return {
        "question": "worker kills",
        "kills": len(kills),
        "without_lease": len(kills) - counted(kills),
        "rows": sum(run["rows"] for run in runs),
        "exit_code": max(run["exit_code"] for run in runs),
        "model_finite": all(each["finite"] for each in (*runs, *kills)),
        "faults": [fault for run in runs for fault in run["faults"]],
        "seconds": {d: spread([k[d] for k in kills if k[d] is not None]) for d in delays},
        "all": kills,
    }


def disturbed_run(times: int, rng: Random, kills: list[dict[str, Any]]) -> dict[str, Any]:
    """Add kills of workers of one run to `kills`, as many as one worker may have."""
    earlier = len(kills)
    with watched() as run:
        run.start(*FLAGS, *WORKERS)
        params = shared_parameters(run)
        deadline = time.monotonic() + LEASE_WITHIN_S
        while counted(kills) < times and len(kills) < earlier + MAX_RECENT:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no killed worker held a lease within {LEASE_WITHIN_S:g} s")
            run.wait_in_run(lambda: len(run.log.at_work(leases=3)) == 2, "both workers train")
            time.sleep(rng.uniform(0.0, 0.5))
            kills.append(kill(run, rng))
            kills[-1]["finite"] = bool(np.isfinite(params).all())
            if kills[-1]["reissued"]:
                deadline = time.monotonic() + LEASE_WITHIN_S
            print(f"worker kill {counted(kills)} of {times}: {kills[-1]}", flush=True)
        del params
        return {
            "exit_code": run.interrupt(),
            "faults": audit([Life(run.log.next_life())], ROWS) + run.remaining_with_files(),
            "rows": run.summary()["rows"],
            "finite": run.model_is_finite(),
        }


def counted(kills: list[dict[str, Any]]) -> int:
    """The number of kills of workers that held a lease."""
    return sum(bool(each["reissued"]) for each in kills)


def shared_parameters(run: WatchedRun) -> NDArray[np.float32]:
    """The shared parameters, as the workers write them."""
    segment = attach_segments(run.address()["store"]).segments["shared"]
    params: NDArray[np.float32] = segment.array("model/params")
    return params


def kill(run: WatchedRun, rng: Random) -> dict[str, Any]:
    """Kill one worker; return the times until this was detected, its rows were done, and another
    worker replaced it.
    """
    workers, mark = run.log.at_work(), len(run.log.read())
    name = rng.choice(sorted(workers))
    killed = time.time()
    os.kill(workers[name], signal.SIGKILL)
    left = run.wait_in_run(lambda: event_of(run, mark, WorkerLeft, name), f"{name} has left")
    lost = event_of(run, mark, WorkerLost, name)
    assert left
    wanted = sum(stop - start for start, stop in left.reissued)

    def done_again() -> list[Event]:
        """The event of the loss and later leases of the lost rows, once these cover all of them."""
        since = [lease for lease in run.since(mark, LeaseDone) if lease.at >= left.at]
        again = [
            lease for lease in since if any(within(lease.rows, rows) for rows in left.reissued)
        ]
        rows = sum(lease.rows[1] - lease.rows[0] for lease in again)
        return [left, *again] if rows >= wanted else []

    def replaced() -> list[LeaseDone]:
        return [lease for lease in run.since(mark, LeaseDone) if lease.worker not in workers]

    again = run.wait_in_run(done_again, f"the rows of {name} are done")
    back = run.wait_in_run(replaced, "another worker replaces it")[0]
    return {
        "worker": name,
        "reissued": left.reissued,
        "detected": round(lost.at - killed, 4) if lost else None,
        "given back": round(left.at - killed, 4),
        "first again": round(again[1].at - killed, 4) if wanted else None,
        "done again": round(again[-1].at - killed, 4) if wanted else None,
        "training again": round(back.at - killed, 4),
    }


def event_of(run: WatchedRun, mark: int, kind: type[W], worker: str) -> W | None:
    """The first event of this kind about `worker` since `mark`."""
    return next((found for found in run.since(mark, kind) if found.worker == worker), None)


def within(rows: list[int], others: list[int]) -> bool:
    """Whether `rows` lie within `others`, both [start, stop)."""
    return others[0] <= rows[0] and rows[1] <= others[1]
