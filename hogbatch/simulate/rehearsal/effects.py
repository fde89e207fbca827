"""The effects of commands in a rehearsal: on the real model, at simulated times."""

from dataclasses import dataclass

from hogbatch.events.event import AnyEvent
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.run.components import RunComponents
from hogbatch.simulate.hardware.host_cost import HostCost


@dataclass(frozen=True, slots=True)
class RehearsedEffects:
    """Carries out commands with the components of a run; `cost` predicts how long they take."""

    components: RunComponents
    cost: HostCost

    def fence(self, number: int) -> int:
        return self.components.segments.fences.current(number)

    def revoke(self, number: int) -> None:
        self.components.segments.fences.revoke(number)

    def shuffle(self, epoch: int, without: int) -> float:
        self.components.segments.shuffle(epoch, without)
        return self.cost.shuffle_seconds(self.components.setup.plan.train_rows)

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        self.components.segments.quarantine(epoch, start, stop)

    def copy_seconds(self) -> float:
        model = self.components.segments.model
        arrays = model.params, model.first, model.second
        return self.cost.copy_seconds(sum(array.nbytes for array in arrays))

    def copy(self) -> str | None:
        return self.components.snapshots.copy()

    def roll_back(self) -> None:
        self.components.snapshots.roll_back()

    def record(self, event: AnyEvent) -> None:
        self.components.record(event)

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        self.components.recorder.report(evaluation, totals)

    def show_mean(self, shown: bool) -> None:
        self.components.moving_mean.show(shown)

    def keep(self, evaluation: Evaluation | None) -> None:
        self.components.recorder.keep(evaluation)
