"""The interface of observers, which receive everything that a run records."""

from typing import Protocol

from hogbatch.events.event import AnyEvent
from hogbatch.events.records import Evaluation, RunTotals


class Observer(Protocol):
    """Shows or forwards what a run records. Its methods return soon and never raise.

    They are called on the thread of the coordinator, which handles no messages meanwhile.
    """

    def event(self, event: AnyEvent) -> None:
        """An event, as in events.jsonl."""

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        """The result of an evaluation, and the totals of the run at that time."""
