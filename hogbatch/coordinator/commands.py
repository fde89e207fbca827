"""What the coordinator may command its loop to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hogbatch.coordinator.saved import Saved
from hogbatch.telemetry.records import Evaluation
from hogbatch.wire.messages import ToWorker

Status = Literal["finished", "target", "time", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Send:
    """Command: pass `message` to `worker`."""

    worker: str
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Revoke:
    """Command: raise fence `number`, so that its worker stops writing."""

    number: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Command: end process `pid`, which has fallen silent, if it is one of this server's."""

    pid: int


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Command: prepare the order of `epoch`; answer with `Coordinator.order_ready`.

    Of the rows that were quarantined, the first `without` come last.
    """

    epoch: int
    without: int = 0


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Command: note that rows [start, stop) of the order of `epoch` kill whoever trains on them."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Command: look the model through and copy it, beside whatever goes on; answer with
    `Coordinator.snapshot_taken`.

    With `saved`, write a checkpoint of the copy too; answer with `Coordinator.checkpoint_written`.
    """

    saved: Saved | None


@dataclass(frozen=True, slots=True)
class RollBack:
    """Command: put the last good snapshot in the model's place; nobody writes at this moment."""


@dataclass(frozen=True, slots=True)
class Record:
    """Command: append to the event log."""

    event: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Report:
    """Command: tell people about an evaluation."""

    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class ShowMean:
    """Command: put the moving mean in the place of the model, or the model back; nobody writes."""

    shown: bool


@dataclass(frozen=True, slots=True)
class Keep:
    """Command: copy the parameters as they are now; nobody writes them at this moment."""

    evaluation: Evaluation | None


@dataclass(frozen=True, slots=True)
class Finish:
    """Command: the run is over."""

    status: Status
    reason: str  # for people, where the status does not say it all
    diverged: bool = False  # the status is "failed" because the model is of no use
    by_policy: bool = False  # the status is "failed" because the batch policy does not work


Command = (
    Send
    | Revoke
    | Kill
    | Shuffle
    | Quarantine
    | Snapshot
    | RollBack
    | Record
    | Report
    | ShowMean
    | Keep
    | Finish
)
