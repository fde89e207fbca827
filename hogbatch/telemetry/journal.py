"""What is kept of a run while it goes on: events, evaluations, and the parameters to save."""

import weakref
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.telemetry.live import Live
from hogbatch.telemetry.records import Evaluation, RunTotals
from hogbatch.telemetry.sinks import EventLog

SPOKEN = {  # events that people want to see as they happen
    "worker_joined": "{worker} joined: process {pid}, {runs_on}",
    "worker_compiles": "{worker} compiles its kernels, which takes about 30 s; this happens once "
    "per installation and kind of network",
    "worker_ready": "{worker} is ready, with batches of {batch_size}",
    "worker_lost": "{worker} is lost: {reason}; its rows go to others",
    "goodbye": "{worker} leaves; its rows go to others",
    "worker_restarted": "{runs_on} is started again ({times} of {most})",
    "worker_given_up": "{runs_on} is given up: {reason}",
    "rows_skipped": "{worker}: {skipped} of the rows {rows} of epoch {epoch} gave no finite "
    "gradient and are left out, row {row} of the training set among them",
    "merge_refused": "{worker}: {refused} changes over the rows {rows} of epoch {epoch} were not "
    "finite and are left out",
    "rows_often_skipped": "{warning}",
    "poisoned": "the model is not finite at {where}: it goes back to the last good snapshot, with "
    "half the learning rate ({times} of {most} without progress between them); rows were skipped "
    "first in {suspects}",
    "recovered": "training makes progress after the roll-back: the learning rate is at "
    "{rate_factor:.0%} of its configured value",
    "quarantined": "rows {rows} of epoch {epoch} have killed {deaths} workers and are left out "
    "from now on; see bad-leases.jsonl",
    "checkpoint_failed": "{reason}; training goes on",
    "out_of_memory": "{worker}: {from} -> {to} rows a batch (out of memory)",
}


class Refused(NamedTuple):
    """What did not get as far as the coordinator's state."""

    frames: int
    connections: int


class Journal:
    """Takes in reports; `params`[P] are the shared parameters, which it copies when told to."""

    def __init__(
        self, run_dir: Path, live: Live, params: NDArray[np.float32], append: bool = False
    ) -> None:
        self.log = EventLog(run_dir / "events.jsonl", append)
        self.history: list[Evaluation] = []
        self.kept: Evaluation | None = None  # of the parameters that were copied last
        self.live = live
        self._shared = params
        self._copy: NDArray[np.float32] | None = None
        self._lent: weakref.ref[NDArray[np.float32]] | None = None  # a view that others may hold

    def resume(
        self,
        history: list[Evaluation],
        kept: Evaluation | None,
        params: NDArray[np.float32] | None,
    ) -> None:
        """Go on with what was known of the run, and kept of its model, when it was cut off."""
        self.history, self.kept, self._copy = history, kept, params

    def record(self, event: str, fields: Mapping[str, object]) -> None:
        """Log an event; say so too if it is about who comes and goes."""
        self.log.write(event, fields)
        if event in SPOKEN:
            self.live.say(SPOKEN[event].format(**fields))

    def report(self, evaluation: Evaluation, standing: RunTotals) -> None:
        """Take in one evaluation."""
        self.history.append(evaluation)
        self.log.write("evaluation", asdict(evaluation))
        self.live.report(evaluation, standing)

    def keep(self, evaluation: Evaluation | None) -> None:
        """Copy the shared parameters; `evaluation` says how good they are, if it is known."""
        if self._copy is None or (self._lent is not None and self._lent() is not None):
            self._copy = self._shared.copy()  # a checkpoint is being written of the one before
        else:
            np.copyto(self._copy, self._shared)
        self.kept = evaluation

    @property
    def kept_params(self) -> NDArray[np.float32] | None:
        """The parameters[P] that were kept; None before there are any.

        They stay as they are for as long as this very array is held.
        """
        if self._copy is None:
            return None
        view = self._copy.view()
        self._lent = weakref.ref(view)
        return view

    @property
    def params(self) -> NDArray[np.float32]:
        """The parameters to save: those kept, or the shared ones as they stand if none were."""
        return self._shared if self._copy is None else self._copy

    def summary(
        self, status: str, reason: str, standing: RunTotals, refused: Refused
    ) -> dict[str, Any]:
        """The contents of summary.json."""
        faults = replace(
            standing.faults,
            messages_refused=standing.faults.messages_refused + refused.frames,
            connections_refused=refused.connections,
        )
        kept = self.kept
        return {
            "status": status,
            "reason": reason,
            "train_seconds": standing.seconds,
            "epochs": standing.epochs,
            "rows": standing.rows,
            "train_loss": self.history[-1].train_loss if self.history else None,
            "test": _test(kept) if kept else None,
            "saved": {"seconds": kept.seconds, "epochs": kept.epochs} if kept else None,
            "history": [_entry(evaluation) for evaluation in self.history],
            "workers": [asdict(worker) for worker in standing.workers],
            "faults": asdict(faults),
        }


def _entry(evaluation: Evaluation) -> dict[str, Any]:
    """One entry of `history`; `test_value` is the first metric."""
    return {**asdict(evaluation), "test_value": next(iter(evaluation.test_values.values()), None)}


def _test(kept: Evaluation) -> dict[str, Any] | None:
    """How the kept model does on the test set; None without one."""
    if kept.test_loss is None:
        return None
    metric, value = next(iter(kept.test_values.items()))
    return {
        "loss": kept.test_loss,
        "metric": metric,
        "value": value,
        "values": kept.test_values,
    }
