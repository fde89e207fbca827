"""Which learning-rate scaling lowers the test loss fastest, at the default base rate?

Trains each data set with CPU and GPU workers together (by default one thread and `gpu:host`), so
that batches of very different sizes update one model; once per scaling and seed, in turn.

    scripts/bench learning_rate_scaling --data DIR --seconds 20 --json out.json

DIR holds w8a.svm.gz, covtype.csv.gz, delicious-{train,test}.xmc.gz, imdb-{train,test}.svm.gz.
Prints one line per run and a table of the median lowest test loss by data set and scaling.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import hogbatch
from benchmarks.common import arguments, report
from benchmarks.common.data_sets import DIRECTORY_HELP, TASKS

SETS = ("w8a", "covtype", "delicious", "imdb")
SCALINGS = ("none", "linear", "sqrt")


def measure(given: argparse.Namespace, name: str, scaling: str, seed: int) -> dict[str, Any]:
    """One run: its lowest test loss and the training seconds at which it was reached."""
    task = TASKS[name]
    with tempfile.TemporaryDirectory() as directory:
        run = hogbatch.train(
            data=str(given.data / task.data),
            test=str(given.data / task.test) if task.test else None,
            hidden=task.hidden,
            optimizer=given.optimizer,
            lr_scaling=scaling,
            workers=given.workers,
            policy=given.policy,
            max_seconds=given.seconds,
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
    """Median lowest test loss by data set and scaling."""
    rows = []
    for name in dict.fromkeys(result["set"] for result in results):
        cells = []
        for scaling in SCALINGS:
            losses = [
                r["test_loss"] for r in results if (r["set"], r["scaling"]) == (name, scaling)
            ]
            cells.append("diverged" if None in losses else f"{statistics.median(losses):.4f}")
        rows.append([name, *cells])
    return report.markdown(["set", *SCALINGS], rows)


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("learning_rate_scaling", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help=DIRECTORY_HELP)
    add("--sets", type=arguments.names(SETS), default=list(SETS), help=", ".join(SETS))
    add("--workers", default="cpu:1,gpu:host", help="workers (default: cpu:1,gpu:host)")
    add("--optimizer", default="adagrad", help="update rule (default: adagrad)")
    add("--policy", default="adaptive", help="batch policy (default: adaptive)")
    add("--seconds", type=float, default=20.0, help="training seconds of a run (default: 20)")
    add("--seeds", type=int, default=1, help="number of seeds (default: 1)")
    arguments.add_json(parser)
    given = parser.parse_args()
    results = []
    for seed in range(given.seeds):
        for name in given.sets:
            for scaling in SCALINGS:  # in turn, so that changes in speed affect all of them
                results.append(measure(given, name, scaling, seed))
                print(results[-1], flush=True)
    print(table(results))
    settings = {
        name: getattr(given, name) for name in ("workers", "policy", "optimizer", "seconds")
    }
    report.write(given.json, results, **settings)


if __name__ == "__main__":
    main()
