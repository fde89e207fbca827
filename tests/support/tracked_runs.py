"""Evaluations and workers of a run, as trackers are given them."""

from hogbatch.events.event import Evaluation
from hogbatch.events.records import WorkerRecord
from hogbatch.views.trackers.base import RunStart


def worker(name="cpu-0", **fields):
    usual = {
        "device": "cpu",
        "threads": 2,
        "rows": 200,
        "updates": 5,
        "update_share": 0.75,
        "busy": 0.9,
        "batch_size": 16,
        "batch_trace": [],
        "update_trace": [],
    }
    return WorkerRecord(name, **usual | fields)


def evaluation(rows=100, **fields):
    usual = {"seconds": rows / 50, "epochs": rows / 200, "train_loss": 0.5, "validation_loss": 0.25}
    return Evaluation(rows=rows, **usual | fields)


def described(run_dir, resumed_rows=None, **settings):
    return RunStart(run_dir, {"seed": 3, **settings}, 1_700_000_000.0, resumed_rows)
