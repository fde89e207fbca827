"""The events of a run, as in events.jsonl: their names, fields and texts.

docs/run-directory.md describes each of them. Fields that have a default are not known of every run
or worker.
"""

import json
import math
from typing import Annotated, Any, ClassVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from hogbatch.wire.messages import WorkerFigures

# In files, other numbers are invalid.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # of training: at most 30 years
Rows = Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)]  # [start, stop)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """The base of all events; an instance of this class is an event of another version."""

    at: float = 0.0  # Unix seconds, or simulated ones since the start; set by the log

    TEXT: ClassVar[str] = ""  # with the names of fields; empty: the event is not shown to users

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def fields(self) -> dict[str, Any]:
        """All other fields than name and time, as in the log."""
        fields = msgspec.to_builtins(self, enc_hook=float)  # enc_hook: of NumPy's float64
        return {name: fields[name] for name in fields if name not in ("event", "at")}

    @property
    def text(self) -> str:
        """The event in words; empty if it is not shown to users."""
        return self.TEXT and self.TEXT.format(**self.fields)


# The run ------------------------------------------------------------------------------------------


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """Data, network, and when the run ends or may end."""

    hogbatch: str = ""  # the version
    data: str
    train_rows: int
    validation_rows: int = 0
    test_rows: int
    features: int = 0
    sparse: bool
    network: str
    loss: str
    targets: int = 1  # numbers per row
    metric: str | None = None  # by which models are compared; None: the loss
    epochs: int | None = None
    max_seconds: float | None = None
    patience: float = 0
    target_loss: float | None = None
    process: dict[str, Any] = {}
    environment: dict[str, Any] = {}  # as `machine.environment` reads it
    columns: list[dict[str, Any]] = []  # of a table: the fields of `kinds.ColumnSummary`
    rehearsed: str | UnsetType = UNSET  # the name of the simulated server

    @property
    def description(self) -> str:
        """Data and network of the run in words."""
        form = "sparse" if self.sparse else "dense"
        held_out = [
            f"{rows:,} {name} rows" if rows else f"no {name} rows"
            for name, rows in (("validation", self.validation_rows), ("test", self.test_rows))
        ]
        return (
            f"{self.data}: {self.train_rows:,} training rows, {', '.join(held_out)}, {form}; "
            f"network {self.network}, loss {self.loss}"
        )


class Resumed(Event, frozen=True, tag="resumed"):
    checkpoint: str
    epoch: int
    todo: list[list[int]]
    rows: int
    seconds: float
    evaluations: int | None = None


class Ended(Event, frozen=True, tag="ended", omit_defaults=True):
    """The end; how far the run has come is not known after an error."""

    status: str
    reason: str
    seconds: float | None = None
    epochs: float | None = None
    rows: int | None = None


# Workers ------------------------------------------------------------------------------------------


class OfWorker(Event, frozen=True):
    """Base of the events about one worker."""

    worker: str


class WorkerJoined(OfWorker, frozen=True, tag="worker_joined"):
    TEXT: ClassVar[str] = "{worker} joined: process {pid}, {runs_on}"
    runs_on: str  # its device, with its threads or number: "cpu:2", "gpu:0"
    pid: int


class WorkerCompiles(OfWorker, frozen=True, tag="worker_compiles"):
    TEXT: ClassVar[str] = (
        "{worker} is compiling its kernels, which takes about 15 s; this happens "
        "once per installation and kind of network"
    )


class WorkerReady(OfWorker, frozen=True, tag="worker_ready", omit_defaults=True):
    TEXT: ClassVar[str] = "{worker} is ready, batch size {batch_size}"
    limits: tuple[int, int]
    batch_size: int
    teams: tuple[int, int] | None = None  # of a CPU worker, and the threads of each


class WorkerLost(OfWorker, frozen=True, tag="worker_lost"):
    TEXT: ClassVar[str] = "{worker} was lost: {reason}; its rows are reassigned"
    reason: str


class Goodbye(OfWorker, frozen=True, tag="goodbye"):
    TEXT: ClassVar[str] = "{worker} has left; its rows are reassigned"


class WorkerLeft(OfWorker, frozen=True, kw_only=True, tag="worker_left"):
    """A worker is removed, lost or not; others train on its unfinished rows."""

    epoch: int = 0
    reissued: list[Rows]


class WorkerRestarted(Event, frozen=True, tag="worker_restarted"):
    TEXT: ClassVar[str] = "{runs_on} was restarted ({times} of {most})"
    runs_on: str
    pid: int  # of the new process
    times: int  # restarts within ten minutes, or in a row without a finished lease
    most: int  # of these


class WorkerGivenUp(Event, frozen=True, tag="worker_given_up"):
    TEXT: ClassVar[str] = "{runs_on} will not be restarted: {reason}"
    runs_on: str
    reason: str  # with the last lines of its log


class WorkerParked(OfWorker, frozen=True, tag="worker_parked"):
    TEXT: ClassVar[str] = "{worker} is parked, so it only evaluates: {reason}"
    reason: str


class PolicyStopped(Event, frozen=True, tag="policy_stopped"):
    TEXT: ClassVar[str] = (
        "--policy {policy}: {method} has not returned within {seconds:g} s and is not called "
        "again; batch sizes stay as they are"
    )
    policy: str
    method: str
    seconds: float


class WorkerUnparked(OfWorker, frozen=True, tag="worker_unparked"):
    TEXT: ClassVar[str] = "{worker} trains again"


class OutOfMemory(
    OfWorker, frozen=True, tag="out_of_memory", rename={"too_large": "from", "batch_size": "to"}
):
    TEXT: ClassVar[str] = "{worker} ran out of memory: batch size {from} -> {to}"
    too_large: int
    batch_size: int  # from now on


# Rows ---------------------------------------------------------------------------------------------


class OfLeases(Event, frozen=True, omit_defaults=True):
    """Base of the events about leases of one worker that were done."""

    seconds: float  # of training, at the end of the last one
    epoch: int  # of the last one
    worker: str
    batch_size: int  # of the last one
    updates: int
    busy_seconds: float | None = None
    # of a GPU worker
    staleness: float | None = None  # mean of the updates
    merge_seconds: float | None = None
    transferred: int | None = None
    transfer_seconds: float | None = None


class OfLease(OfLeases, frozen=True, kw_only=True):
    """Base of the events about one lease that was done."""

    rows: Rows


class LeaseDone(OfLease, frozen=True, kw_only=True, tag="lease"):
    @property
    def row_count(self) -> int:
        return self.rows[1] - self.rows[0]


class LeasesDone(OfLeases, frozen=True, kw_only=True, tag="leases"):
    """Several leases in a row of one worker; the fields are sums of those of LeaseDone."""

    leases: int
    rows: int

    @property
    def row_count(self) -> int:
        return self.rows


class MergeRefused(OfLease, frozen=True, kw_only=True, tag="merge_refused"):
    TEXT: ClassVar[str] = (
        "{worker}: {refused} merges over the rows {rows} of epoch {epoch} were not finite and were "
        "skipped"
    )
    refused: int


class RowsSkipped(OfLease, frozen=True, kw_only=True, tag="rows_skipped"):
    TEXT: ClassVar[str] = (
        "{worker}: {skipped} of the rows {rows} of epoch {epoch} had no finite gradient and were "
        "skipped, among them row {row} of the training set"
    )
    skipped: int
    row: int  # of the training set; one of them


class RowsOftenSkipped(Event, frozen=True, tag="rows_often_skipped"):
    TEXT: ClassVar[str] = (
        "{skipped:,} of {rows:,} rows had no finite gradient and were skipped (events.jsonl names "
        "some of them): scale features (--scale standard) and labels, or lower --lr, now {rate:.3g}"
    )
    skipped: int
    rows: int
    skipped_row: int  # 1 + the number of one of them in the training set; 0: not known
    rate: float  # the learning rate


class Quarantined(Event, frozen=True, tag="quarantined"):
    TEXT: ClassVar[str] = (
        "rows {rows} of epoch {epoch} have killed {deaths} workers and are excluded from training; "
        "see bad-leases.jsonl"
    )
    epoch: int
    rows: Rows
    deaths: int


class EpochEnded(Event, frozen=True, tag="epoch"):
    epoch: int
    rows: int


# The model ----------------------------------------------------------------------------------------


class EvaluationBegins(Event, frozen=True, tag="evaluation_begins"):
    rows: int
    set: str = "validation"  # whose rows they are


class Evaluation(Event, frozen=True, tag="evaluation"):
    """The result of one evaluation. Losses are means per row."""

    seconds: Seconds  # of training, without evaluations
    epochs: float
    rows: Count  # trained on since the start
    train_loss: float | None  # mean since the last evaluation, before each update
    validation_loss: float | None
    validation_values: dict[str, float] = {}  # metric name → value
    # worker name → rows per second since the last evaluation over its peak; without
    # workers that have not measured it
    utilization: dict[str, float] = {}
    noise_scale: float | None = None  # rows; see hogbatch.policy.noise_scale. None: not known
    noise_error: float | None = None  # its standard error, in rows

    @property
    def metrics(self) -> dict[str, float]:
        """Progress, losses and metrics in one dict, e.g. `validation_accuracy`.

        `train_loss` and `validation_loss` are NaN if there is none.
        """
        return {
            "seconds": self.seconds,
            "epochs": self.epochs,
            "rows": self.rows,
            "train_loss": math.nan if self.train_loss is None else self.train_loss,
            "validation_loss": math.nan if self.validation_loss is None else self.validation_loss,
            **{f"validation_{name}": value for name, value in self.validation_values.items()},
        }


class Tested(Event, frozen=True, tag="tested"):
    """The result of the kept model on the test rows, which chose nothing."""

    loss: float | None  # mean per row; None: not finite
    values: dict[str, float] = {}  # metric name → value


class BaselineMeasured(Event, frozen=True, tag="baseline"):
    """The result of a prediction that ignores the features, on the rows of a set."""

    set: str
    prediction: str  # what is always predicted, in words
    loss: float
    values: dict[str, float] = {}  # metric name → value


class Assessed(Event, frozen=True, tag="assessed"):
    """A remark about the result of a run, for the user."""

    TEXT: ClassVar[str] = "{text}"
    text: str


class Reached(Event, frozen=True):
    """Base of the events about a checkpoint."""

    epoch: int
    rows: int
    seconds: float


class CheckpointBegins(Reached, frozen=True, tag="checkpoint_begins"):
    """One is being written."""


class CheckpointWritten(Reached, frozen=True, tag="checkpoint"):
    """One was written."""


class CheckpointFailed(Event, frozen=True, tag="checkpoint_failed"):
    TEXT: ClassVar[str] = "{reason}; training continues"
    reason: str


class Poisoned(Event, frozen=True, tag="poisoned"):
    TEXT: ClassVar[str] = (
        "the model is not finite at {where}: rolling back to the last good snapshot and halving "
        "the learning rate ({times} of {most} roll-backs without progress between them); the first "
        "skipped rows were in {suspects}"
    )
    where: str | None  # a parameter
    times: int
    most: int
    suspects: list[dict[str, Any]]  # the fields of RowsSkipped


class Recovered(Event, frozen=True, tag="recovered"):
    TEXT: ClassVar[str] = (
        "training has made progress since the roll-back: the learning rate is now "
        "{rate_factor:.0%} of its configured value"
    )
    counted: int  # roll-backs that still count
    rate_factor: float


# Servers ------------------------------------------------------------------------------------------


class WorkersOfServer(Event, frozen=True, tag="server_workers"):
    worker: str  # the server
    workers: list[WorkerFigures]
    others: int = 0  # workers that are not listed


class ServersMerged(Event, frozen=True, tag="servers_merged"):
    merge: int
    servers: list[str]
    weights: list[float]
    rows: int  # that are acknowledged by it
    merge_seconds: float  # on the slowest server
    busy_seconds: float  # CPU time of a merging thread


class PlaneChosen(Event, frozen=True, tag="plane"):
    TEXT: ClassVar[str] = "models of servers are moved through {plane}"
    plane: str | None


AnyEvent = (
    Started | Resumed | Ended | WorkerJoined | WorkerCompiles | WorkerReady | WorkerLost | Goodbye
    | WorkerLeft | WorkerRestarted | WorkerGivenUp | WorkerParked | WorkerUnparked | OutOfMemory
    | PolicyStopped | LeaseDone | LeasesDone | MergeRefused | RowsSkipped | RowsOftenSkipped
    | Quarantined
    | EpochEnded | EvaluationBegins | Evaluation | Tested | BaselineMeasured | Assessed
    | CheckpointBegins | CheckpointWritten | CheckpointFailed | Poisoned | Recovered
    | WorkersOfServer | ServersMerged | PlaneChosen
)  # fmt: skip
NAMES = frozenset(kind.__struct_config__.tag for kind in get_args(AnyEvent))


def read_event(line: bytes) -> Event | None:
    """The event on a line of events.jsonl; None if it is damaged."""
    try:
        fields = json.loads(line)  # accepts NaN and Infinity, which json.dumps writes
        name, at = fields["event"], float(fields["at"])
        return msgspec.convert(fields, AnyEvent) if name in NAMES else Event(at=at)
    except (ValueError, RecursionError, KeyError, TypeError, msgspec.ValidationError):
        return None
