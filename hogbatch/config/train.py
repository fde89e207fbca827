"""The settings of a training run: one field for each flag of `hogbatch train`.

:class:`TrainConfig` is the single table of settings. Flags (`arguments`), TOML keys and the
arguments of `hogbatch.train` (`sources`) are derived from its fields.
"""

import re
from dataclasses import dataclass, fields
from typing import Final

from hogbatch.config.flags import Flag, Group, choice, flag
from hogbatch.config.losses import LOSSES
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.values import (
    ABOVE_ONE,
    BATCH_LIMITS,
    BOOLEAN,
    DAMPING,
    FRACTION,
    INT64,
    INTEGER,
    NAMES,
    NON_NEGATIVE,
    NUMBER,
    POSITIVE,
    TEAMS,
    TEXT,
    UP_TO_ONE,
    WIDTHS,
    WORKERS,
    BatchLimits,
    Constraint,
    Damping,
    Workers,
)

TRACKERS: Final = ("csv", "tensorboard", "mlflow", "wandb")
RUNS: Final = "runs"  # directory of the run directories that are named by hogbatch
SCALES: Final = ("auto", "none", "standard", "max", "quantile")


def _parses_as_lsh(text: str) -> bool:
    from hogbatch.config.lsh import parses  # here: evaluating a model does not require msgspec

    return parses(text)


MAX_SERVERS: Final = 128
SERVERS: Final = Constraint(f"from 1 to {MAX_SERVERS}", lambda value: 1 <= value <= MAX_SERVERS)
PER_SERVER: Final = Constraint(
    "workers as in cpu:8,gpu:all",
    lambda text: re.fullmatch(r"cpu:(auto|[1-9]\d*)(,gpu:(all|\d+))?", text) is not None,
)
FEATURES: Final = Constraint("from 1 to 2^31 - 1", lambda value: 0 < value < 2**31)
LSH: Final = Constraint("hashing settings", _parses_as_lsh)
TRACKER: Final = Constraint(f"one of {', '.join(TRACKERS)}", lambda name: name in TRACKERS)


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The settings of a training run. :func:`hogbatch.config.sources.merge_sources` validates them.

    None selects a default that depends on the data or the machine: for `test`, a `test_fraction` of
    the data; for `lr`, `l2`, `epochs` and `patience`, see `run.defaults`; for `cpu_batch`, see
    `policy.limits`, for `cpu_teams`, `compute.teams`; `gpu_batch` is measured at the start;
    `merge_every` and `eval_seconds` are set so that merging and evaluation take little time;
    `run_dir` is runs/<timestamp>-<data name>.
    """

    data: str = flag(
        Group.DATA,
        "",
        TEXT,
        "training data: file, - for standard input, or name of the bundled sample",
        "DATA",
    )
    test: str | None = flag(
        Group.DATA, None, TEXT, "test data: file, or - for standard input", "DATA"
    )
    test_fraction: float = flag(
        Group.DATA,
        0.2,
        NUMBER,
        "fraction of the rows of DATA used as the test set when --test is not given",
        "FRACTION",
        FRACTION,
    )
    label: str | None = flag(
        Group.DATA,
        None,
        TEXT,
        "label column of a table: name, or number from 0 (default: last column)",
        "NAME",
    )
    drop: tuple[str, ...] = flag(
        Group.DATA, (), NAMES, "columns of a table that are not used", "NAME,..."
    )
    categorical: tuple[str, ...] = flag(
        Group.DATA,
        (),
        NAMES,
        "columns of a table with categories: one feature per value (default: text columns)",
        "NAME,...",
    )
    numeric: tuple[str, ...] = flag(
        Group.DATA,
        (),
        NAMES,
        "columns of a table with numbers (default: found by inspection)",
        "NAME,...",
    )
    text: tuple[str, ...] = flag(
        Group.DATA,
        (),
        NAMES,
        "columns of a table whose words and word pairs are features (TF-IDF)",
        "NAME,...",
    )
    index_base: str = choice(
        Group.DATA, "auto", "number of the first feature in libsvm files", ("auto", "0", "1")
    )
    header: str = choice(
        Group.DATA,
        "auto",
        "presence of a header line in CSV files; auto: detected from the cells",
        ("auto", "yes", "no"),
    )
    features: int | None = flag(
        Group.DATA,
        None,
        INTEGER,
        "number of features of libsvm data (default: from the highest index)",
        "N",
        FEATURES,
    )
    scale: str = choice(
        Group.DATA,
        "auto",
        "feature scaling: standard (mean 0, standard deviation 1), max (largest absolute value 1), "
        "quantile (place among the quantiles; tables only); auto: standard for tables, else max "
        "for sparse and standard for dense data, if any feature needs it",
        SCALES,
    )
    bad_lines: float = flag(
        Group.DATA,
        0.0,
        NUMBER,
        "maximum fraction of malformed lines to skip in a text file",
        "FRACTION",
        UP_TO_ONE,
    )
    data_cache: str = flag(
        Group.DATA,
        "auto",
        TEXT,
        "cache of parsed text files: auto (~/.cache/hogbatch/data), off, or a directory",
        "DIR",
    )

    hidden: tuple[int, ...] = flag(
        Group.MODEL,
        (512, 512),
        WIDTHS,
        "widths of the hidden layers; empty text: linear model",
        "H,H,...",
        POSITIVE,
    )
    activation: str = choice(
        Group.MODEL,
        "relu",
        "activation function of the hidden layers",
        ("relu", "sigmoid", "tanh"),
    )
    output: str = choice(
        Group.MODEL,
        "auto",
        "output layer: dense, or lsh (only the outputs found by hashing are computed); "
        "auto: lsh for 10,000 or more outputs",
        ("auto", "dense", "lsh"),
    )
    lsh: str = flag(
        Group.MODEL,
        "auto",
        TEXT,
        "hashing settings of --output lsh, see docs/slide.md",
        "FAMILY:KEY=VALUE,...",
        LSH,
    )
    loss: str = choice(
        Group.MODEL,
        "auto",
        "loss function; auto: chosen from the labels",
        ("auto", *LOSSES),
    )

    optimizer: str = choice(
        Group.OPTIMIZATION,
        "adagrad",
        "update rule (optimizer)",
        tuple(OPTIMIZERS),
    )
    lr: float | None = flag(
        Group.OPTIMIZATION,
        None,
        NUMBER,
        "learning rate for batches of --lr-batch rows (default: depends on optimizer, loss and "
        "data)",
        "RATE",
        POSITIVE,
    )
    lr_scaling: str = choice(
        Group.OPTIMIZATION,
        "auto",
        "scaling of the learning rate with the batch size; auto: depends on the optimizer",
        ("auto", "none", "linear", "sqrt"),
    )
    lr_batch: int = flag(
        Group.OPTIMIZATION,
        16,
        INTEGER,
        "batch size at which --lr applies without scaling",
        "ROWS",
        POSITIVE,
    )
    lr_cap: float = flag(
        Group.OPTIMIZATION,
        4.0,
        NUMBER,
        "maximum factor by which scaling multiplies the learning rate",
        "X",
        POSITIVE,
    )
    l2: float | None = flag(
        Group.OPTIMIZATION,
        None,
        NUMBER,
        "L2 penalty (default: decreases with the number of rows, 0 from 10,000 rows on)",
        "X",
        NON_NEGATIVE,
    )
    seed: int = flag(
        Group.OPTIMIZATION,
        0,
        INTEGER,
        "random seed for the split, row order and initial weights",
        "N",
        INT64,
    )
    deterministic: bool = flag(
        Group.OPTIMIZATION,
        False,
        BOOLEAN,
        "bitwise reproducible training: one CPU thread, evaluation at the end of epochs",
    )

    workers: Workers = flag(  # noqa: RUF009 (here and below: it is dataclasses.field)
        Group.WORKERS,
        "auto",
        WORKERS,
        "workers to start: auto (all GPUs, and a CPU thread per core), or a list of cpu:THREADS, "
        "gpu:N, gpu:host",
        "LIST",
    )
    pin: bool = flag(
        Group.WORKERS,
        True,
        BOOLEAN,
        "pinning of each CPU thread to its own core, if there are enough cores",
    )
    cpu_teams: int | None = flag(
        Group.WORKERS,
        None,
        TEAMS,
        "number of teams of each CPU worker; the threads of a team compute each batch together "
        "(default: auto: one team if the threads are pinned and most of the work is in dense "
        "layers, else each thread on its own)",
        "auto|N",
        POSITIVE,
    )
    start_with: int = flag(
        Group.WORKERS,
        1,
        INTEGER,
        "number of workers that must be ready before training starts",
        "N",
        POSITIVE,
    )
    wait_for_workers: float = flag(
        Group.WORKERS, 60.0, NUMBER, "maximum time without any worker, in seconds", "S", POSITIVE
    )

    policy: str = choice(
        Group.BATCH_POLICY,
        "adaptive",
        "batch policy; module:Class: your own, see docs/batch-policy.md",
        ("adaptive", "paper-adaptive", "hogbatch", "fixed", "module:Class"),
    )
    cpu_batch: BatchLimits | None = flag(  # noqa: RUF009
        Group.BATCH_POLICY,
        None,
        BATCH_LIMITS,
        "limits of the batch size of a CPU thread or a team of threads, in rows (default: the "
        "minimum is measured at the start, the maximum is 64, for a team 16 rows per thread if "
        "that is more, and less for small data)",
        "MIN:MAX",
    )
    gpu_batch: BatchLimits | None = flag(  # noqa: RUF009
        Group.BATCH_POLICY,
        None,
        BATCH_LIMITS,
        "limits of the batch size of a GPU, in rows (default: measured at the start)",
        "MIN:MAX",
    )
    critical_batch: float | None = flag(
        Group.BATCH_POLICY,
        None,
        NUMBER,
        "rows in flight with which training needs twice the rows, for --policy adaptive: with a "
        "larger value, more workers train together (default: a 48th of the training rows, from 64 "
        "to 768; 1536 if most of the work is in a sparse first layer)",
        "ROWS",
        POSITIVE,
    )
    min_utilization: float = flag(
        Group.BATCH_POLICY,
        0.5,
        NUMBER,
        "lower limit of the batch size of a GPU without --gpu-batch, and of a CPU thread or team "
        "without --cpu-batch: the smallest measured batch with this fraction of its peak rows per "
        "second (--policy fixed and hogbatch, --deterministic: one row on a CPU)",
        "FRACTION",
        UP_TO_ONE,
    )
    alpha: float = flag(
        Group.BATCH_POLICY,
        2.0,
        NUMBER,
        "resize factor of --policy paper-adaptive",
        "FACTOR",
        ABOVE_ONE,
    )
    beta: float = flag(
        Group.BATCH_POLICY,
        1.0,
        NUMBER,
        "weight of a CPU update relative to a GPU merge, in --policy paper-adaptive",
        "X",
        POSITIVE,
    )
    lease_ms: float = flag(
        Group.BATCH_POLICY,
        50.0,
        NUMBER,
        "target duration of a lease (the rows one message hands to a worker), in milliseconds",
        "MS",
        POSITIVE,
    )

    merge: str = choice(
        Group.GPU_MERGING,
        "delta",
        "merge rule: how a GPU's change is applied to the shared model",
        ("delta", "overwrite", "average"),
    )
    merge_every: int | None = flag(
        Group.GPU_MERGING,
        None,
        INTEGER,
        "number of GPU batches between two merges (default: so that merging takes a tenth of the "
        "time)",
        "BATCHES",
        POSITIVE,
    )
    staleness_damping: Damping | None = flag(  # noqa: RUF009
        Group.GPU_MERGING,
        None,
        DAMPING,
        "factor of a GPU's change after N updates by other workers: per-weight: smaller for the "
        "weights that they have changed more; root: 1/sqrt(1+N); a number BETA: exp(-BETA*N); "
        "auto: BETA from the measured staleness; off: 1 (default: per-weight if most of the work "
        "is in dense layers, else root)",
        "per-weight|root|auto|BETA|off",
    )
    precision: str = choice(
        Group.GPU_MERGING,
        "float32",
        "precision of the matrix products on a GPU",
        ("float32", "tf32", "bfloat16"),
    )

    cluster: str | None = flag(
        Group.SEVERAL_SERVERS,
        None,
        TEXT,
        "train on several servers: auto: those of the Ray cluster of this machine; the address of "
        "a Ray cluster; local: processes of this machine (docs/cluster.md)",
        "auto|ADDRESS|local",
    )
    servers: int = flag(
        Group.SEVERAL_SERVERS,
        1,
        INTEGER,
        "number of servers, each with a model of its own that is merged with the others'",
        "N",
        SERVERS,
    )
    per_server: str = flag(
        Group.SEVERAL_SERVERS,
        "cpu:auto,gpu:all",
        TEXT,
        "workers of each server: cpu:auto (all its cores) or cpu:THREADS, gpu:all or gpu:COUNT",
        "LIST",
        PER_SERVER,
    )
    data_copies: int | None = flag(
        Group.SEVERAL_SERVERS,
        None,
        INTEGER,
        "DATA is a folder that all servers see: each of its files is read by so many servers, so "
        "that the rows need not fit into the memory of one machine; with 2 or more, other servers "
        "take over the rows of one that is lost",
        "N",
        POSITIVE,
    )
    merge_rows: int | None = flag(
        Group.SEVERAL_SERVERS,
        None,
        INTEGER,
        "rows of all servers between two merges (default: a five-hundredth of the training rows; "
        "in a rehearsal, a hundredth)",
        "ROWS",
        POSITIVE,
    )
    server_merge: str = choice(
        Group.SEVERAL_SERVERS,
        "adasum",
        "how models are merged: adasum: changes are added, less where they agree; sum: they are "
        "added; average: averaged by updates, as by Adaptive SGD",
        ("adasum", "sum", "average"),
    )
    server_momentum: float = flag(
        Group.SEVERAL_SERVERS, 0.0, NUMBER, "momentum of the merged model", "X", FRACTION
    )
    transfer: str = choice(
        Group.SEVERAL_SERVERS,
        "float32",
        "what servers send in a merge: all of a change, rounded to 16 bits, or its largest parts; "
        "what is left out is sent later",
        ("float32", "bfloat16", "top-k"),
    )
    robust: str = choice(
        Group.SEVERAL_SERVERS,
        "none",
        "median: the geometric median of the servers' changes in place of their sum, which is not "
        "affected by a minority of servers that send garbage",
        ("none", "median"),
    )
    plane: str = choice(
        Group.SEVERAL_SERVERS,
        "auto",
        "how models are moved: nixl: one-sided writes; relay: through the object store of Ray; "
        "auto: nixl if it is installed",
        ("auto", "nixl", "relay"),
    )

    epochs: int | None = flag(
        Group.STOPPING,
        None,
        INTEGER,
        "maximum number of passes over the training set (default: 10, more for small data)",
        "N",
        POSITIVE,
    )
    patience: int | None = flag(
        Group.STOPPING,
        None,
        INTEGER,
        "number of epochs without a lower test loss after which training stops; 0: no such limit "
        "(default: 0 with --epochs or --max-seconds, else 10 or more)",
        "N",
        NON_NEGATIVE,
    )
    max_seconds: float | None = flag(
        Group.STOPPING,
        None,
        NUMBER,
        "maximum training time in seconds, evaluations not included",
        "S",
        POSITIVE,
    )
    target_loss: float | None = flag(
        Group.STOPPING, None, NUMBER, "test loss at which training stops", "X", POSITIVE
    )
    eval_seconds: float | None = flag(
        Group.STOPPING,
        None,
        NUMBER,
        "training time between two evaluations, in seconds (default: so that evaluations "
        "take a small part of the time)",
        "S",
        POSITIVE,
    )
    evaluate: str = choice(
        Group.STOPPING,
        "test",
        "rows to evaluate; train,test: also all training rows, after each epoch and at the end, "
        "for the exact training loss (not within the training time)",
        ("test", "train,test"),
    )
    average: str = choice(
        Group.STOPPING,
        "auto",
        "evaluation and saving of the mean of recent models; auto: with --output lsh",
        ("auto", "on", "off"),
    )
    keep: str = choice(
        Group.STOPPING,
        "best",
        "model to save: the one with the best test results, or the last one",
        ("best", "last"),
    )

    checkpoint_seconds: float = flag(
        Group.CHECKPOINTS,
        60.0,
        NUMBER,
        "time between two checkpoints, in seconds; 0: no checkpoints",
        "S",
        NON_NEGATIVE,
    )
    resume: str | None = flag(
        Group.CHECKPOINTS,
        None,
        TEXT,
        "run directory or checkpoint to resume from; auto: --run-dir, if it contains a checkpoint",
        "auto|PATH",
    )

    listen: str | None = flag(
        Group.SECURITY,
        None,
        TEXT,
        "TCP address for worker messages, encrypted with keys made for this run "
        "(default: an unnamed local socket)",
        "tcp://IP:PORT",
    )
    insecure: bool = flag(
        Group.SECURITY,
        False,
        BOOLEAN,
        "no keys with --listen: the coordinator accepts unauthenticated connections",
    )

    run_dir: str | None = flag(
        Group.OUTPUT, None, TEXT, "run directory (default: runs/<timestamp>-<data name>)", "DIR"
    )
    overwrite: bool = flag(
        Group.OUTPUT,
        False,
        BOOLEAN,
        "replacement of an earlier run in --run-dir, once the new run has saved something",
    )
    log: tuple[str, ...] = flag(
        Group.OUTPUT,
        (),
        NAMES,
        f"experiment trackers that are given the values of each evaluation: {', '.join(TRACKERS)}; "
        "see docs/trackers.md (default: none)",
        "NAME,...",
        TRACKER,
    )
    plain: bool = flag(
        Group.OUTPUT,
        False,
        BOOLEAN,
        "plain lines on a terminal, in place of a view that is updated, see docs/live.md",
    )
    quiet: bool = flag(Group.OUTPUT, False, BOOLEAN, "no progress output")


FLAGS: Final[dict[str, Flag]] = {f.name: f.metadata["flag"] for f in fields(TrainConfig)}
