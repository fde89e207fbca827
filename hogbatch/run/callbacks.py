"""Functions of the caller of `hogbatch.train` that are called during a run, and may end it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.events.event import AnyEvent, Evaluation, OfWorker, WorkerGivenUp, WorkerRestarted
from hogbatch.events.records import Observer, WorkerRecord

OnEvaluation = Callable[[Evaluation], object]
OnWorker = Callable[[str, Mapping[str, Any]], object]

WORKER_EVENTS: Final = (OfWorker, WorkerRestarted, WorkerGivenUp)


@dataclass(slots=True)
class Callbacks(Observer):
    """The callbacks of one run. One that returns True, or raises an exception, ends the run.

    They are called on the thread that called `train`, which handles no messages of workers
    meanwhile.
    """

    on_evaluation: OnEvaluation | None = None  # called with the result of each evaluation
    on_worker: OnWorker | None = None  # called with an event of WORKER_EVENTS and its fields
    interrupts: Interrupts = field(default_factory=Interrupts)
    error: BaseException | None = None  # raised by a callback; to raise when the run has ended

    def event(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        if self.on_evaluation is not None and isinstance(event, Evaluation):
            self._call(self.on_evaluation, event)
        if self.on_worker is not None and isinstance(event, WORKER_EVENTS):
            self._call(self.on_worker, event.name, event.fields)

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        if self.interrupts.count:  # the run is ending
            return
        try:
            stop = callback(*arguments) is True
        except BaseException as error:
            self.error, stop = error, True
        if stop:
            self.interrupts.request("stopped by a callback")
