"""Records of a run: events, evaluations, and the parameters to save."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch.config.sets import SetName
from hogbatch.events.event import AnyEvent, BaselineMeasured, Evaluation, Tested
from hogbatch.events.event_log import EventLog
from hogbatch.events.records import Observer, RunTotals, WorkerRecord
from hogbatch.model.network import Tensor
from hogbatch.store.average import exchange
from hogbatch.store.scan import first_not_finite


class RunRecorder:
    """Records one run; `params`[P] are the shared parameters, which :meth:`keep` copies."""

    def __init__(
        self,
        log: EventLog,
        observers: Sequence[Observer],
        params: NDArray[np.float32],
        marks: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`marks` are fields of the summary."""
        self.log = log
        self.marks = marks
        self.history: list[Evaluation] = []
        self.kept: Evaluation | None = None  # of the kept parameters
        self.threshold: float | None = None  # of the kept parameters, if one was chosen
        self.temperature: float | None = None  # the same
        self.tested: Tested | None = None  # the result of the kept parameters on the test rows
        self.baselines: dict[str, BaselineMeasured] = {}  # by set
        self.members: list[dict[str, Any]] = []  # of an ensemble, as in summary.json
        self.label_vectors: dict[str, Any] | None = None  # of the model, as in summary.json
        self.observers = list(observers)
        self.complete: Callable[[], bool] = lambda: False  # called before the copy is used
        self._shared = params
        self._copy: NDArray[np.float32] | None = None
        self._reserved: NDArray[np.float32] | None = None  # memory for the first copy
        self._lent: Callable[[], object] = lambda: None  # returns a view held by a caller

    def record(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        """Log an event; an Evaluation comes with the `workers` of the run."""
        if isinstance(event, Evaluation):
            self.history.append(event)
        if isinstance(event, Tested):
            self.tested = event
        if isinstance(event, BaselineMeasured):
            self.baselines[event.set] = event
        logged = self.log.write(event)
        for observer in self.observers:
            observer.event(logged, workers)

    def reserve(self) -> None:
        """Take the memory of the first copy, before training, which waits while one is made.

        Writing to new memory takes up to 20 times as long.
        """
        self._reserved = self._shared.copy()

    def keep(
        self, evaluation: Evaluation | None, params: NDArray[np.float32] | None = None
    ) -> bool:
        """Copy the shared parameters, or keep the array `params`, which is not copied.

        `evaluation` is theirs, None if they were not evaluated. False, and nothing is kept, if
        parameters that were evaluated have a NaN or Inf: something has overwritten them since.
        """
        if params is not None:
            self._copy = params
        elif evaluation is not None and first_not_finite(self._shared) is not None:
            return False
        else:
            # A copy that is lent out is being written to a checkpoint.
            if self._copy is None or self._lent() is not None:
                unused, self._reserved = self._reserved, None
                self._copy = np.empty_like(self._shared) if unused is None else unused
            np.copyto(self._copy, self._shared)
        self.kept, self.threshold, self.temperature = evaluation, None, None
        return True

    def divide(self, layer: Sequence[Tensor], temperature: float) -> None:
        """Divide the kept parameters of the last layer, and so the scores, by `temperature`."""
        for tensor in layer:
            tensor.view(self._changeable())[...] /= temperature
        self.temperature = temperature

    def add_metrics(self, values: Mapping[str, float], loss: float | None = None) -> None:
        """Add metrics of the kept parameters on the validation rows, and replace their loss."""
        if self.kept is not None:
            known = {**self.kept.validation_values, **values}
            loss = self.kept.validation_loss if loss is None else loss
            self.kept = structs.replace(self.kept, validation_loss=loss, validation_values=known)

    def show_kept(self, shown: bool) -> None:
        """Exchange the shared and the kept parameters, to evaluate these; with False, once more."""
        self.complete()
        if self._copy is not None:
            exchange(self._changeable(), self._shared)

    def _changeable(self) -> NDArray[np.float32]:
        """The kept parameters[P], to be changed, which a checkpoint being written does not see."""
        assert self._copy is not None
        if self._lent() is not None or not self._copy.flags.writeable:
            self._copy = self._copy.copy()
        return self._copy

    @property
    def kept_params(self) -> NDArray[np.float32] | None:
        """The kept parameters[P]; None before there are any.

        The array does not change as long as the caller holds it.
        """
        self.complete()
        if self._copy is None:
            return None
        view = self._copy.view()
        self._lent = weakref.ref(view)
        return view

    @property
    def params(self) -> NDArray[np.float32]:
        """The parameters to save: those kept, or the current shared ones if none were kept."""
        self.complete()
        return self._shared if self._copy is None else self._copy

    @property
    def results(self) -> dict[SetName, tuple[float, Mapping[str, float]]]:
        """Loss and metrics of the kept model by set, where the loss is known and finite."""
        kept, tested = self.kept, self.tested
        found: dict[SetName, tuple[float, Mapping[str, float]]] = {}
        if kept is not None and kept.validation_loss is not None:
            found["validation"] = kept.validation_loss, kept.validation_values
        if tested is not None and tested.loss is not None:
            found["test"] = tested.loss, tested.values
        return found

    def summary(self, status: str, reason: str, totals: RunTotals) -> dict[str, Any]:
        kept = self.kept
        results = {name: _result(*each) for name, each in self.results.items()}
        return {
            **self.marks,
            **({"members": self.members} if self.members else {}),
            "status": status,
            "reason": reason,
            "train_seconds": totals.seconds,
            "epochs": totals.epochs,
            "rows": totals.rows,
            "train_loss": self.history[-1].train_loss if self.history else None,
            "validation": results.get("validation"),
            "test": results.get("test"),
            "threshold": self.threshold,
            "temperature": self.temperature,
            "label_vectors": self.label_vectors,
            "baselines": {name: each.fields for name, each in self.baselines.items()},
            "saved": kept and {name: getattr(kept, name) for name in ("seconds", "epochs", "rows")},
            "history": [_entry(evaluation) for evaluation in self.history],
            "workers": [asdict(worker) for worker in totals.workers],
            "faults": asdict(totals.faults),
        }


def _entry(evaluation: Evaluation) -> dict[str, Any]:
    """An entry of `history`; `validation_value` is the first metric."""
    value = next(iter(evaluation.validation_values.values()), None)
    return {**evaluation.fields, "validation_value": value}


def _result(loss: float, values: Mapping[str, float]) -> dict[str, Any]:
    metric, value = next(iter(values.items()), ("loss", loss))
    return {"loss": loss, "metric": metric, "value": value, "values": dict(values)}
