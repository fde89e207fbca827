"""A command in place of `hogbatch rehearse`: writes a run directory, trains nothing.

Each device has its own speed. `--seed 13` fails, as a crash would; the file named by FAKE_LOG
gets a line for each call.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROWS_PER_S = {"cpu": 1000.0, "gpu": 4000.0}
START_LOSS = 0.8
FAILING_SEED = 13


def devices(workers):
    """The kinds of processors in a --workers list; both by default."""
    return [part.partition(":")[0] for part in workers.split(",")] if workers else ["cpu", "gpu"]


def worker(kind, rows, updates):
    """A worker of summary.json."""
    made = {"name": f"{kind}-0", "device": kind, "rows": rows, "updates": updates}
    return made | {"update_share": 0.5, "busy": 0.9, "batch_trace": [[0.0, 64]]}


def main():
    """Write summary.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["rehearse"])
    parser.add_argument("--workers", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--target-loss", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--run-dir", type=Path, required=True)
    given, _ = parser.parse_known_args()
    if log := os.environ.get("FAKE_LOG"):
        with open(log, "a", encoding="utf-8") as file:
            file.write(" ".join(sys.argv[1:]) + "\n")
    if given.seed == FAILING_SEED:
        print("Traceback (most recent call last):\nValueError: no rows", file=sys.stderr)
        sys.exit(1)
    kinds = devices(given.workers)
    speed = sum(ROWS_PER_S[kind] for kind in kinds)
    history, seconds, loss = [], 0.0, START_LOSS
    limit = min(given.max_seconds, 60.0, given.epochs * 26_000 / speed)
    while loss > given.target_loss and seconds < limit:
        seconds += 0.5
        rows = int(speed * seconds)
        loss = START_LOSS / (1 + rows / 10_000)
        point = {"seconds": seconds, "epochs": rows / 26_000, "rows": rows, "train_loss": loss}
        point |= {"validation_loss": loss, "validation_value": 1 - loss, "validation_values": {}}
        history.append(point | {"utilization": {f"{kind}-0": 0.5 for kind in kinds}})
    workers = [worker(kind, int(ROWS_PER_S[kind] * seconds), 100) for kind in kinds]
    summary = {"status": "target", "train_seconds": seconds, "rows": rows, "history": history}
    summary |= {"workers": workers, "rehearsed": {"server": "fake", "wall_seconds": 1.5}}
    given.run_dir.mkdir(parents=True)
    (given.run_dir / "summary.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
