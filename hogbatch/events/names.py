"""The names of files in a run directory that several packages read or write."""

from typing import Final

FOLDER: Final = "checkpoints"
MODEL: Final = "model.safetensors"
SUMMARY: Final = "summary.json"
EVENTS: Final = "events.jsonl"
CONFIG: Final = "config.toml"
CRASH: Final = "crash.txt"
REPORT: Final = "report.html"
ELSEWHERE: Final = "elsewhere"  # a link to the directory with results that were not saved here
MEMBERS: Final = "members"  # the runs of the further members of an ensemble, if it is one
SERVERS: Final = "servers"  # the files of each server, if there are several

# Files and folders of experiment trackers.
METRICS: Final = "metrics.csv"
TENSORBOARD: Final = "tensorboard"
MLFLOW_RUN: Final = "mlflow-run-id"
WANDB_RUN: Final = "wandb-run-id"
WANDB: Final = "wandb"
