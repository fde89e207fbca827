"""Which learning-rate scaling brings the test loss down soonest, with the default base rate?

Trains each set with CPU and GPU workers together (by default one thread and `gpu:host`), so that
batches of very different sizes meet in one model, once per scaling and seed, in turn.

    scripts/bench learning_rate_scaling --data DIR --seconds 20 --json out.json

DIR holds w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import about

import hogbatch

SETS: dict[str, dict[str, Any]] = {
    "w8a": {"data": "w8a.svm.gz", "hidden": (512, 512, 512)},
    "covtype": {"data": "covtype.csv.gz", "hidden": (512, 512, 512)},
    "delicious": {
        "data": "delicious-train.xmc.gz",
        "test": "delicious-test.xmc.gz",
        "hidden": (512, 512),
    },
    "imdb": {"data": "imdb-train.svm.gz", "test": "imdb-test.svm.gz", "hidden": (128,)},
}
SCALINGS = ("none", "linear", "sqrt")


def measure(arguments: argparse.Namespace, name: str, scaling: str, seed: int) -> dict[str, Any]:
    """One run; its lowest test loss and when it was met."""
    settings = dict(SETS[name])
    for key in ("data", "test"):
        if key in settings:
            settings[key] = str(arguments.data / settings[key])
    with tempfile.TemporaryDirectory() as directory:
        run = hogbatch.train(
            **settings,
            optimizer=arguments.optimizer,
            lr_scaling=scaling,
            workers=arguments.workers,
            policy=arguments.policy,
            max_seconds=arguments.seconds,
            seed=seed,
            run_dir=f"{directory}/run",
            quiet=True,
        )
    summary = run.summary
    return {
        "set": name,
        "scaling": scaling,
        "seed": seed,
        "test_loss": summary["test"] and summary["test"]["loss"],
        "seconds": summary["saved"] and summary["saved"]["seconds"],
        "rows_skipped": summary["faults"]["rows_skipped"],
        "batches": {w["name"]: w["batch_size"] for w in summary["workers"]},
        "shares": {w["name"]: w["update_share"] for w in summary["workers"]},
    }


def table(results: list[dict[str, Any]]) -> str:
    """Median lowest test loss by set and scaling."""
    lines = ["| set | " + " | ".join(SCALINGS) + " |", "|---|" + "---|" * len(SCALINGS)]
    for name in dict.fromkeys(result["set"] for result in results):
        cells = []
        for scaling in SCALINGS:
            losses = [
                r["test_loss"] for r in results if (r["set"], r["scaling"]) == (name, scaling)
            ]
            cells.append("diverged" if None in losses else f"{statistics.median(losses):.4f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated (default: all)")
    parser.add_argument("--workers", default="cpu:1,gpu:host")
    parser.add_argument("--optimizer", default="adagrad")
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--seconds", type=float, default=20.0, help="training seconds of a run")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    results = []
    for seed in range(arguments.seeds):
        for name in arguments.sets.split(","):
            for scaling in SCALINGS:  # in turn, so that a drift of the machine meets all alike
                results.append(measure(arguments, name, scaling, seed))
                print(results[-1], flush=True)
    print(table(results))
    settings = {
        name: getattr(arguments, name) for name in ("workers", "policy", "optimizer", "seconds")
    }
    about.write(arguments.json, results, **settings)


if __name__ == "__main__":
    main()
