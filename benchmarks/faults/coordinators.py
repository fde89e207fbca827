"""Is the result of a run as good if its coordinator is killed and resumed at random moments?"""

import time
from random import Random
from typing import Any

from benchmarks.common.run_history import Life, audit
from benchmarks.common.watched_run import ROWS, WatchedRun, watched
from benchmarks.faults.figures import spread

# A rate so low that the loss falls until the end, so that lost updates would show in it.
FLAGS = ("a9a", "--hidden", "256,256", "--optimizer", "sgd", "--lr", 0.002)
OFTEN = ("--workers", "cpu:1,cpu:1", "--checkpoint-seconds", 0.3, "--eval-seconds", 0.5)
KILL_AFTER_S = (0.1, 2.0)  # seconds of training before a kill
CLOSE = 1.02  # maximum ratio of two test losses


def measure(times: int, seed: int, epochs: int) -> dict[str, Any]:
    """Runs of `epochs` epochs, undisturbed and then killed until they finish; `times` kills."""
    rng, runs, kills = Random(seed), list[dict[str, Any]](), 0
    while kills < times:
        flags = (*FLAGS, *OFTEN, "--epochs", epochs, "--seed", seed + len(runs))
        calm = undisturbed(flags)
        print(f"run {len(runs)}, undisturbed: {calm}", flush=True)
        runs.append({"undisturbed": calm, **killed(flags, rng, times - kills)})
        runs[-1]["ratio"] = runs[-1]["test_loss"] / calm["test_loss"]
        kills += len(runs[-1]["kills"])
        print(f"run {len(runs) - 1}, {kills} of {times} kills: {runs[-1]}", flush=True)
    ratios = [run["ratio"] for run in runs]
    all_kills = [kill for run in runs for kill in run["kills"]]
    return {
        "question": "coordinator kills",
        "kills": kills,
        "worst_ratio": max(ratios),
        "all_close": all(1 / CLOSE <= ratio <= CLOSE for ratio in ratios),
        "faults": [fault for run in runs for fault in run["faults"]],
        "leftovers": [left for kill in all_kills for left in kill["leftovers"]],
        "training_again_seconds": spread([kill["training again"] for kill in all_kills]),
        "lost_rows": spread([kill["lost rows"] for kill in all_kills]),
        "runs": runs,
    }


def undisturbed(flags: tuple[object, ...]) -> dict[str, Any]:
    """The result of a run without kills."""
    with watched() as run:
        run.start(*flags)
        return result(run)


def killed(flags: tuple[object, ...], rng: Random, limit: int) -> dict[str, Any]:
    """The result of a run that is killed at random moments, up to `limit` times."""
    kills, lives = list[dict[str, Any]](), list[Life]()
    with watched() as run:
        run.start(*flags)
        while len(kills) < limit and not run.ends_within(rng.uniform(*KILL_AFTER_S)):
            left = run.kill()
            lives.append(Life.of(run.log.next_life()))
            start = time.monotonic()
            run.start(*flags, "--resume", "auto")
            kills.append({"training again": round(time.monotonic() - start, 3), "leftovers": left})
            kills[-1]["lost rows"] = lives[-1].rows_at_the_end - run.resumed_at()
        found = result(run)
        lives.append(Life.of(run.log.next_life()))
        return {"kills": kills, "faults": audit(lives, ROWS), **found}


def result(run: WatchedRun) -> dict[str, Any]:
    """The result of a run, once it has finished."""
    code = run.finish()
    summary, left = run.summary(), run.remaining_with_files()
    return {
        "exit_code": code,
        "status": summary["status"],
        "epochs": summary["epochs"],
        "train_seconds": round(summary["train_seconds"], 3),
        "test_loss": summary["history"][-1]["validation_loss"],
        "kept_test_loss": summary["validation"]["loss"],
        "model_finite": run.model_is_finite(),
        "left_at_the_end": left,
    }
