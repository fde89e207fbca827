"""The records of a run: lines of events.jsonl and the stable summary.json."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: where the run stands. Losses are means per row."""

    seconds: float  # training seconds, evaluation left out
    epochs: float
    rows: int  # trained on since the start
    train_loss: float | None  # mean since the last evaluation, as batches met it
    test_loss: float | None
    test_values: dict[str, float] = field(default_factory=dict)  # metric name → value


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """One worker's part in a run."""

    name: str
    device: str
    threads: int
    rows: int
    updates: int
    update_share: float
    busy: float  # seconds computing over training seconds attached, 0..1
    batch_size: int
    batch_trace: list[tuple[float, int]]  # [training seconds, rows], at each change
    update_trace: list[tuple[float, int]]  # [training seconds, updates], at each evaluation
    left_at: float | None = None  # training seconds; None for one who stayed to the end
    staleness: float | None = None  # updates of others between a GPU's pull and merge, mean
    active: float | None = None  # neurons of a hashed output layer that an update computed, mean


@dataclass(frozen=True, slots=True)
class Faults:
    """What went wrong and was survived."""

    leases_reissued: int = 0
    rows_skipped: int = 0
    messages_refused: int = 0
    workers_lost: int = 0
    merges_refused: int = 0
    rows_quarantined: int = 0  # they have killed three workers
    roll_backs: int = 0
    checkpoints_failed: int = 0
    connections_refused: int = 0


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The coordinator's account at one moment."""

    seconds: float
    epochs: float
    rows: int
    workers: list[WorkerRecord]
    faults: Faults
