"""Carries out the commands of a coordinator, with the actions of a real or a simulated run."""

from dataclasses import dataclass
from typing import Protocol

from hogbatch.coordinator.commands import (
    Answer,
    Command,
    Finish,
    Keep,
    Kill,
    LimitRestarts,
    LoadServer,
    MergeStep,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    Send,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.event import AnyEvent
from hogbatch.events.records import Evaluation
from hogbatch.wire.messages import ToCoordinator, ToWorker


class WorkforceActions(Protocol):
    """What every coordinator commands; the commands describe the methods."""

    def send(self, worker: str, message: ToWorker) -> None:
        """See Send."""

    def revoke(self, number: int) -> None:
        """See Revoke."""

    def kill(self, pid: int) -> None:
        """See Kill."""

    def shuffle(self, epoch: int, without: int) -> None:
        """See Shuffle."""

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        """See Quarantine."""

    def record(self, event: AnyEvent) -> None:
        """See Record."""

    def end(self, finish: Finish) -> None:
        """See Finish."""


class ModelActions(Protocol):
    """What a coordinator commands that decides about the model."""

    def snapshot(self, saved: SavedState | None) -> None:
        """See Snapshot."""

    def roll_back(self) -> None:
        """See RollBack."""

    def report(self, evaluation: Evaluation) -> None:
        """See Report."""

    def show_mean(self, shown: bool) -> None:
        """See ShowMean."""

    def keep(self, evaluation: Evaluation | None) -> None:
        """See Keep."""


class ServersActions(Protocol):
    """What a coordinator commands whose workers are servers."""

    def load_server(self, worker: str, source: str | None) -> None:
        """See LoadServer."""

    def limit_restarts(self, worker: str, reason: str) -> None:
        """See LimitRestarts."""


class UpstreamActions(Protocol):
    """What the coordinator of one of several servers commands."""

    def answer(self, message: ToCoordinator) -> None:
        """See Answer."""

    def exchange(self, step: MergeStep) -> None:
        """See MergeStep."""


@dataclass(slots=True)
class Executor:
    """Calls the action of each command.

    A run has the groups of actions that its coordinator commands.
    """

    workforce: WorkforceActions
    model: ModelActions | None = None
    servers: ServersActions | None = None
    upstream: UpstreamActions | None = None

    def execute(self, command: Command) -> None:
        """Carry out `command`."""
        match command:
            case Send(worker, message):
                self.workforce.send(worker, message)
            case Revoke(number):
                self.workforce.revoke(number)
            case Kill(pid):
                self.workforce.kill(pid)
            case Shuffle(epoch, without):
                self.workforce.shuffle(epoch, without)
            case Quarantine(epoch, start, stop):
                self.workforce.quarantine(epoch, start, stop)
            case Record(event):
                self.workforce.record(event)
            case Finish():
                self.workforce.end(command)
            case Snapshot(saved) if self.model:
                self.model.snapshot(saved)
            case RollBack() if self.model:
                self.model.roll_back()
            case Report(evaluation) if self.model:
                self.model.report(evaluation)
            case ShowMean(shown) if self.model:
                self.model.show_mean(shown)
            case Keep(kept) if self.model:
                self.model.keep(kept)
            case LoadServer(worker, source) if self.servers:
                self.servers.load_server(worker, source)
            case LimitRestarts(worker, reason) if self.servers:
                self.servers.limit_restarts(worker, reason)
            case Answer(answer) if self.upstream:
                self.upstream.answer(answer)
            case MergeStep() if self.upstream:
                self.upstream.exchange(command)
            case _:
                raise TypeError(f"this run has no action for {command}")
