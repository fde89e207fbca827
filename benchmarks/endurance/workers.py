"""A worker is killed at random moments: is every row done once, and how soon do others go on?"""

import os
import random
import signal
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endurance.figures import spread
from endurance.runs import FOR_EVER, ROWS, Event, Watched, watched
from hogbatch.store.segment_server import fetch_segments
from tests.chaos.history import Life, audit

FLAGS = ("a9a", "--hidden", "256,256", *FOR_EVER, "--lease-ms", 20, "--eval-seconds", 1e6)
WORKERS = ("--workers", "cpu:1,cpu:1")


def measure(times: int, seed: int) -> dict[str, Any]:
    """Kill one of two workers `times` times; seconds from the kill to what follows it.

    `first again` is when the first of the lost rows were acknowledged by another, which is later
    than when they were handed out, and `done again` when the last were: they go out batch by batch.
    Evaluations are left out, for their leases are in no ledger of rows.
    """
    chance, kills = random.Random(seed), list[dict[str, Any]]()
    with watched() as run:
        run.start(*FLAGS, *WORKERS)
        params = shared_parameters(run)
        for number in range(times):
            run.wait_for(lambda: len(run.at_work(leases=3)) == 2, "both workers train")
            time.sleep(chance.uniform(0.0, 0.5))
            kills.append(kill(run, chance))
            kills[-1]["finite"] = bool(np.isfinite(params).all())
            print(f"worker kill {number + 1} of {times}: {kills[-1]}", flush=True)
        del params
        code = run.interrupt()
        faults = audit([Life(run.next_life())], ROWS) + run.leftovers()
        rows = run.job.summary()["rows"]
        finite = run.model_is_finite() and all(kill["finite"] for kill in kills)
    delays = ("detected", "given back", "first again", "done again", "training again")
    return {
        "question": "worker kills",
        "kills": len(kills),
        "rows": rows,
        "exit_code": code,
        "model_finite": finite,
        "faults": faults,
        "seconds": {d: spread([k[d] for k in kills if k[d] is not None]) for d in delays},
        "all": kills,
    }


def shared_parameters(run: Watched) -> NDArray[np.float32]:
    """The model as the workers write it."""
    segment = fetch_segments(run.job.address()["store"], timeout_s=5.0).segments["shared"]
    params: NDArray[np.float32] = segment.array("model/params")
    return params


def kill(run: Watched, chance: random.Random) -> dict[str, Any]:
    """Kill one worker; when it was noticed, its rows done, and its place taken."""
    there, mark = run.at_work(), run.mark()
    name = chance.choice(sorted(there))
    killed = time.time()
    os.kill(there[name], signal.SIGKILL)
    left = run.wait_for(lambda: about(run, mark, "worker_left", name), f"{name} has left")
    lost = about(run, mark, "worker_lost", name)
    wanted = sum(stop - start for start, stop in left["reissued"])

    def done_again() -> list[Event]:
        """Leases of others since, once they hold all that was lost."""
        since = [lease for lease in run.since(mark, "lease") if lease["at"] >= left["at"]]
        again = [lease for lease in since if any(within(lease, rows) for rows in left["reissued"])]
        rows = sum(lease["rows"][1] - lease["rows"][0] for lease in again)
        return [left, *again] if rows >= wanted else []

    def replaced() -> list[Event]:
        return [lease for lease in run.since(mark, "lease") if lease["worker"] not in there]

    again = run.wait_for(done_again, f"the rows of {name} are done")
    back = run.wait_for(replaced, "another takes its place")[0]
    return {
        "worker": name,
        "reissued": left["reissued"],
        "detected": round(lost["at"] - killed, 4) if lost else None,
        "given back": round(left["at"] - killed, 4),
        "first again": round(again[1]["at"] - killed, 4) if wanted else None,
        "done again": round(again[-1]["at"] - killed, 4) if wanted else None,
        "training again": round(back["at"] - killed, 4),
    }


def about(run: Watched, mark: int, event: str, worker: str) -> Event | None:
    """The event of that name about `worker` since `mark`."""
    return next((found for found in run.since(mark, event) if found["worker"] == worker), None)


def within(lease: Event, rows: list[int]) -> bool:
    """Whether a lease is of some of `rows`, [start, stop)."""
    start, stop = lease["rows"]
    return bool(rows[0] <= start and stop <= rows[1])
