"""The test loss of runs in which a server is killed and replaced, over that of undisturbed runs.

    scripts/bench killed_server --data DIR --seeds 3 --json out.json

Trains on two servers of one core on this machine, for some epochs. Then again, and kills the first
server with SIGKILL after a third of the rows; the one that replaces it joins with the model of the
other. Every row of every epoch must be counted once in both runs.
"""

import argparse
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import arguments, report
from benchmarks.common.data_sets import DIRECTORY_HELP
from benchmarks.common.job import Job, wait_for

WITHIN_S = 600.0  # of a run
SERVERS = ("--cluster", "local", "--servers", "2", "--per-server", "cpu:1")


def run(given: argparse.Namespace, seed: int, *, kill: bool) -> dict[str, Any]:
    """One run: its last test loss, rows, and rows of each epoch."""
    with TemporaryDirectory() as folder:
        job = Job(folder)
        data = (given.data / "covtype.csv.gz").resolve()
        network = ("--hidden", "256,256", "--epochs", given.epochs, "--seed", seed)
        process = job.train(data, *SERVERS, *network, "--plain")
        if kill:
            ended = given.epochs // 3
            wait_for(lambda: len(job.events("epoch")) >= ended, "a third is done", WITHIN_S)
            os.kill(job.events("worker_joined")[0]["pid"], signal.SIGKILL)
        if job.finish(WITHIN_S) != 0:
            raise SystemExit(job.said(process))
        summary, epochs = job.summary(), [each["rows"] for each in job.events("epoch")]
        if len(epochs) != given.epochs or len(set(epochs)) != 1:
            raise SystemExit(f"expected {given.epochs} epochs with all rows; got rows {epochs}")
        return {
            "loss": summary["history"][-1]["test_loss"],
            "rows": summary["rows"],
            "epochs": epochs,
            "rows_by_server": {each["name"]: each["rows"] for each in summary["workers"]},
        }


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("killed_server", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help=DIRECTORY_HELP)
    add("--seeds", type=arguments.positive(int), default=3, help="number of seeds (default: 3)")
    add("--epochs", type=arguments.positive(int), default=9, help="of a run (default: 9)")
    arguments.add_json(parser)
    given = parser.parse_args()
    results = []
    for seed in range(given.seeds):
        usual, killed = (run(given, seed, kill=kill) for kill in (False, True))
        ratio = killed["loss"] / usual["loss"]
        results.append({"seed": seed, "ratio": ratio, "undisturbed": usual, "killed": killed})
        print(
            f"seed {seed}: {usual['loss']:.4f} undisturbed, {killed['loss']:.4f} with a killed "
            f"server, ratio {ratio:.3f}; rows {usual['rows']:,} and {killed['rows']:,}",
            flush=True,
        )
    report.write(given.json, results, epochs=given.epochs)


if __name__ == "__main__":
    main()
