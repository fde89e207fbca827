"""The settings of a training run: one field for each flag of `hogbatch train`.

:class:`TrainConfig`, with its base class, is the single table of settings. Flags (`arguments`),
TOML keys and the arguments of `hogbatch.train` (`sources`) are derived from its fields.
"""

import re
from dataclasses import dataclass, fields
from typing import Final

from hogbatch.config.flags import Flag, Group
from hogbatch.config.learning import LearningConfig
from hogbatch.config.metrics import METRIC_NAMES, TUNED
from hogbatch.config.values import (
    ABOVE_ONE,
    BATCH_LIMITS,
    BOOLEAN,
    CLUSTER,
    COUNT,
    COUNT_OR_ZERO,
    INTEGER,
    NAMES,
    NON_NEGATIVE,
    PATH,
    POSITIVE,
    SECONDS,
    TEAMS,
    TEXT,
    UP_TO_ONE,
    WORKERS,
    BatchLimits,
    Workers,
)

TRACKERS: Final = ("csv", "tensorboard", "mlflow", "wandb")
RUNS: Final = "runs"  # directory of the run directories that are named by hogbatch
MAX_SERVERS: Final = 128
COMPARED_BY: Final = ("auto", "loss", *METRIC_NAMES)
METRIC: Final = TEXT.one_of(COMPARED_BY)
THRESHOLD: Final = TEXT.one_of(TUNED, "|".join(TUNED))
SERVERS: Final = INTEGER.where(f"from 1 to {MAX_SERVERS}", range(1, MAX_SERVERS + 1).__contains__)
PER_SERVER: Final = TEXT.where(
    "workers as in cpu:8,gpu:all",
    lambda text: re.fullmatch(r"cpu:(auto|[1-9]\d*)(,gpu:(all|\d+))?", text) is not None,
    "LIST",
)
TRACKER: Final = NAMES.one_of(TRACKERS)


@dataclass(frozen=True, slots=True)
class TrainConfig(LearningConfig):
    """The settings of a training run. :func:`hogbatch.config.sources.merge_sources` validates them.

    None selects a default that depends on the data or the machine: for `test`, a `test_fraction` of
    the data; for `validation_fraction`, see `data.order`; for `lr`, `l2`, `epochs` and `patience`,
    see `run.defaults`; for `cpu_batch`, see `policy.limits`, for `cpu_teams`, `compute.teams`;
    `gpu_batch` is measured at the start; `merge_every` and `eval_seconds` are set so that merging
    and evaluation take little time; `run_dir` is runs/<timestamp>-<data name>.
    """

    workers: Workers = Group.WORKERS.flag(  # noqa: RUF009 (here and below: it is dataclasses.field)
        "auto",
        WORKERS,
        "workers to start: auto (all GPUs, and a CPU thread per core), or a list of cpu:THREADS, "
        "gpu:N, gpu:host",
    )
    pin: bool = Group.WORKERS.flag(
        True, BOOLEAN, "pinning of each CPU thread to its own core, if there are enough cores"
    )
    cpu_teams: int | None = Group.WORKERS.optional(
        TEAMS,
        "number of teams of each CPU worker; the threads of a team compute each batch together "
        "(default: auto: one team if the threads are pinned and most of the work is in dense "
        "layers, else each thread on its own)",
    )
    start_with: int = Group.WORKERS.flag(
        1, COUNT, "number of workers that must be ready before training starts"
    )
    wait_for_workers: float = Group.WORKERS.flag(
        60.0, SECONDS, "maximum time without any worker, in seconds"
    )

    policy: str = Group.BATCH_POLICY.choice(
        "adaptive",
        "batch policy; module:Class: your own, see docs/batch-policy.md",
        ("adaptive", "paper-adaptive", "hogbatch", "fixed"),
        "module:Class",
        r"[\w.]+:\w+",
    )
    cpu_batch: BatchLimits | None = Group.BATCH_POLICY.optional(  # noqa: RUF009
        BATCH_LIMITS,
        "limits of the batch size of a CPU thread or a team of threads, in rows (default: the "
        "minimum is measured at the start, the maximum is 64, or 128 for a team or from 262,144 "
        "training rows on, 16 rows per thread of a team if that is more, and less for small data)",
    )
    gpu_batch: BatchLimits | None = Group.BATCH_POLICY.optional(  # noqa: RUF009
        BATCH_LIMITS,
        "limits of the batch size of a GPU, in rows (default: measured at the start, and with "
        "--policy adaptive at most 512 rows and a 24th of the training rows)",
    )
    critical_batch: float | None = Group.BATCH_POLICY.optional(
        POSITIVE,
        "rows in flight with which training needs twice the rows, for --policy adaptive: with a "
        "larger value, more workers train together (default: a 40th of the training rows, from 64 "
        "to 768; a 16th, from 1536 to 25000, if most of the work is in a sparse first layer)",
        "ROWS",
    )
    min_utilization: float = Group.BATCH_POLICY.flag(
        0.5,
        UP_TO_ONE,
        "lower limit of the batch size of a GPU without --gpu-batch, and of a CPU thread or team "
        "without --cpu-batch: the smallest measured batch with this fraction of its peak rows per "
        "second (--policy fixed and hogbatch, --deterministic: one row on a CPU)",
    )
    alpha: float = Group.BATCH_POLICY.flag(
        2.0, ABOVE_ONE, "resize factor of --policy paper-adaptive"
    )
    beta: float = Group.BATCH_POLICY.flag(
        1.0, POSITIVE, "weight of a CPU update relative to a GPU merge, in --policy paper-adaptive"
    )
    lease_ms: float = Group.BATCH_POLICY.flag(
        50.0,
        POSITIVE,
        "target duration of a lease (the rows one message hands to a worker), in milliseconds",
        "MS",
    )

    merge: str = Group.GPU_MERGING.choice(
        "delta",
        "merge rule: how a GPU's change is applied to the shared model",
        ("delta", "average"),
    )
    merge_every: int | None = Group.GPU_MERGING.optional(
        COUNT,
        "number of GPU batches between two merges (default: --policy adaptive chooses it with the "
        "batch sizes, others so that merging takes a tenth of the time)",
        "BATCHES",
    )
    staleness_damping: str = Group.GPU_MERGING.choice(
        "auto",
        "factor of a GPU's change after N updates by other workers: per-weight: smaller for the "
        "weights that they have changed more; root: 1/sqrt(1+N); off: 1; auto: per-weight if most "
        "of the work is in dense layers, else root",
        ("auto", "per-weight", "root", "off"),
    )
    precision: str = Group.GPU_MERGING.choice(
        "tf32", "precision of the matrix products on a GPU", ("float32", "tf32", "bfloat16")
    )

    cluster: str | None = Group.SEVERAL_SERVERS.optional(
        CLUSTER,
        "train on several servers: auto: those of the Ray cluster of this machine; the address of "
        "a Ray cluster; local: processes of this machine (docs/cluster.md); none: on this server "
        "(default)",
    )
    servers: int = Group.SEVERAL_SERVERS.flag(
        1,
        SERVERS,
        "number of servers, each with a model of its own that is merged with the others'",
    )
    per_server: str = Group.SEVERAL_SERVERS.flag(
        "cpu:auto,gpu:all",
        PER_SERVER,
        "workers of each server: cpu:auto (all its cores) or cpu:THREADS, gpu:all or gpu:COUNT",
    )
    data_copies: int | None = Group.SEVERAL_SERVERS.optional(
        COUNT,
        "DATA is a folder that all servers see: each of its files is read by so many servers, so "
        "that the rows need not fit into the memory of one machine; with 2 or more, other servers "
        "take over the rows of one that is lost",
    )
    merge_rows: int | None = Group.SEVERAL_SERVERS.optional(
        COUNT,
        "rows of all servers between two merges (default: a five-hundredth of the training rows)",
        "ROWS",
    )
    server_merge: str = Group.SEVERAL_SERVERS.choice(
        "adasum",
        "how models are merged: adasum: changes are added, less where they agree; sum: they are "
        "added; average: averaged by updates, as by Adaptive SGD",
        ("adasum", "sum", "average"),
    )
    plane: str = Group.SEVERAL_SERVERS.choice(
        "auto",
        "how models are moved: nixl: one-sided writes; relay: through the object store of Ray; "
        "auto: nixl if it is installed",
        ("auto", "nixl", "relay"),
    )

    epochs: int | None = Group.STOPPING.optional(
        COUNT,
        "maximum number of passes over the training set (default: 10, more for small data; for "
        "networks with --recipe tabular on 10,000 dense rows or more, short runs find it)",
    )
    patience: int | None = Group.STOPPING.optional(
        COUNT_OR_ZERO,
        "number of epochs without a better model after which training stops; 0: no such limit "
        "(default: 0 with --epochs, --max-seconds or --max-rows, else 10 or more)",
    )
    max_seconds: float | None = Group.STOPPING.optional(
        SECONDS, "maximum training time in seconds, evaluations not included"
    )
    max_rows: int | None = Group.STOPPING.optional(
        COUNT, "maximum number of rows trained on; a row counts once per epoch"
    )
    metric: str = Group.STOPPING.flag(
        "auto",
        METRIC,
        "metric of the validation rows by which the kept model is chosen, and which --patience "
        "watches: loss, or a name of docs/metrics.md; auto: loss, but P@1 or accuracy if the "
        "output layer is hashed, and rmse with logarithms of labels",
    )
    target_loss: float | None = Group.STOPPING.optional(
        POSITIVE, "validation loss at which training stops"
    )
    eval_seconds: float | None = Group.STOPPING.optional(
        SECONDS,
        "training time between two evaluations, in seconds (default: so that evaluations "
        "take a small part of the time)",
    )
    average: str = Group.STOPPING.choice(
        "auto",
        "evaluation and saving of the mean of recent models; auto: with --output lsh",
        ("auto", "on", "off"),
    )
    keep: str = Group.STOPPING.choice(
        "best",
        "model to save: the one with the best validation results, or the last one",
        ("best", "last"),
    )
    refit: bool = Group.STOPPING.switch(
        "a second run, on training and validation rows, for as many rows as the kept model of the "
        "first one, which is moved to previous-run/ of the run directory; with --max-rows N: only "
        "this run, for N rows",
    )
    threshold: str | None = Group.STOPPING.optional(
        THRESHOLD,
        "metric that is highest on the validation rows at the decision threshold of the saved "
        "model, for two classes (default: a probability of 0.5)",
    )
    temperature: str = Group.STOPPING.choice(
        "off",
        "number by which the scores of the saved model are divided; auto: the one with the lowest "
        "validation loss, for loss logistic or softmax of classes; off: 1; or a number",
        ("auto", "off"),
        "NUMBER",
        r"0\.[1-9]\d{0,5}|[1-9]\d?(\.\d{1,6})?",  # for the second run of --refit
    )

    checkpoint_seconds: float = Group.CHECKPOINTS.flag(
        60.0, NON_NEGATIVE, "time between two checkpoints, in seconds; 0: no checkpoints", "S"
    )
    resume: str | None = Group.CHECKPOINTS.optional(
        PATH,
        "run directory or checkpoint to resume from; auto: --run-dir, if it contains a checkpoint",
        "auto|PATH",
    )

    run_dir: str | None = Group.OUTPUT.optional(
        PATH, "run directory (default: runs/<timestamp>-<data name>)", "DIR"
    )
    overwrite: bool = Group.OUTPUT.switch(
        "replacement of an earlier run in --run-dir, whose files are moved to previous-run/ there",
    )
    log: tuple[str, ...] = Group.OUTPUT.flag(
        (),
        TRACKER,
        f"experiment trackers that are given the values of each evaluation: {', '.join(TRACKERS)}; "
        "see docs/trackers.md (default: none)",
    )
    events: str = Group.OUTPUT.choice(
        "combined",
        "content of events.jsonl: combined: leases and other frequent events are combined, so that "
        "it grows by 2 MB an hour at most; all: each event, for each lease",
        ("combined", "all"),
    )
    plain: bool = Group.OUTPUT.switch(
        "plain lines on a terminal, in place of a view that is updated, see docs/live.md",
    )
    quiet: bool = Group.OUTPUT.switch("no progress output")

    @property
    def precedes_refit(self) -> bool:
        """Whether the run finds for how many rows a second one trains; see `run.refit`."""
        return self.refit and self.max_rows is None


FLAGS: Final[dict[str, Flag]] = {f.name: f.metadata["flag"] for f in fields(TrainConfig)}
