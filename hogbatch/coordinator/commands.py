"""The commands that the coordinator's state gives.

The state decides and returns commands. The loop of a real run, or `hogbatch.simulate.world` in a
simulated one, carries them out: it has an action for each kind of command that its state gives.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from hogbatch.config.sets import SetName
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.event import AnyEvent, Evaluation
from hogbatch.wire.messages import ToCoordinator, ToServer, ToWorker

Status = Literal["finished", "target", "time", "stopped", "failed"]


class Command(msgspec.Struct, frozen=True):
    """Base of every command."""


class Send(Command, frozen=True):
    """Send `message` to `worker`."""

    worker: str
    message: ToWorker


class Revoke(Command, frozen=True):
    """Raise fence `number`, which ends its worker's right to write."""

    number: int


class Kill(Command, frozen=True):
    """Kill process `pid`, which does not respond, if it runs on this server."""

    pid: int


class Shuffle(Command, frozen=True):
    """Write the row order of `epoch`; answered by `Coordinator.order_ready`.

    The first `without` of the quarantined rows are placed last in the order.
    """

    epoch: int
    without: int = 0


class Quarantine(Command, frozen=True):
    """Record that rows [start, stop) of the order of `epoch` kill workers that train on them."""

    epoch: int
    start: int
    stop: int


class Snapshot(Command, frozen=True):
    """Check the model for NaN and Inf and copy it, in the background; answered by
    `Coordinator.snapshot_taken`.

    With `saved`, also write a checkpoint of the copy; answered by `Coordinator.checkpoint_written`.
    """

    saved: SavedState | None


class RollBack(Command, frozen=True):
    """Restore the last good snapshot of the model; no worker writes it at this moment."""


class Record(Command, frozen=True):
    """Append an event to the event log."""

    event: AnyEvent


class Report(Command, frozen=True):
    """Report an evaluation to the user."""

    evaluation: Evaluation


class ShowMean(Command, frozen=True):
    """Replace the model by its moving mean, or restore the model; no worker writes it."""

    shown: bool


class ShowKept(Command, frozen=True):
    """Replace the model by the kept one, or restore the model; no worker trains any more."""

    shown: bool


class Measure(Command, frozen=True):
    """Compute a metric of a set from the scores of its rows, in the background; answered by
    `Coordinator.measured`.

    Without `metric`, compute all metrics.
    """

    set: SetName
    metric: str | None


class Keep(Command, frozen=True):
    """Copy the parameters in their current state; no worker writes them at this moment."""

    evaluation: Evaluation | None


class LoadServer(Command, frozen=True):
    """Write the model to the memory of server `worker`, in the background; answered by
    `Coordinator.model_written`.

    It is the model of server `source`, or that of this process.
    """

    worker: str
    source: str | None


class Answer(Command, frozen=True):
    """Send `message` to the coordinator of all servers, for whom this process is a worker."""

    message: ToCoordinator


class MergeStep(Command, frozen=True):
    """Do what `message` asks for, in the background; answered by
    `SuppliedCoordinator.exchanged`.

    The server has finished `leases` training leases so far, with `updates` updates of `rows` rows.
    """

    message: ToServer
    leases: int
    updates: int
    rows: int


class Finish(Command, frozen=True):
    """End the run."""

    status: Status
    reason: str | None = None  # for the user, where the status alone does not explain the end
    diverged: bool = False  # the status is "failed" because training has diverged
    by_policy: bool = False  # the status is "failed" because the batch policy failed
    model_lost: bool = False  # only earlier copies of the model are left


Actions = Mapping[type[Command], Callable[[Any], object]]  # kind of command → what carries it out
