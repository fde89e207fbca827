"""Copies of a model in training: what a run goes back to, and what checkpoints are made of."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.checkpoint import folder
from hogbatch.coordinator.saved import Saved
from hogbatch.errors import HogbatchError
from hogbatch.models import Network
from hogbatch.store.model import SharedModel
from hogbatch.store.scan import first_not_finite

KEPT = 3  # checkpoints
Arrays = dict[str, NDArray[Any]]


class ModelCopy(NamedTuple):
    """What a :class:`SharedModel` held at one moment; workers may have written it meanwhile."""

    params: NDArray[np.float32]  # [P]
    first: NDArray[np.float32]
    second: NDArray[np.float32]
    steps: NDArray[np.int64]  # [1]
    merges: NDArray[np.int64]  # [1]

    @classmethod
    def of(cls, model: SharedModel) -> "ModelCopy":
        """A copy of `model`."""
        return cls(*(getattr(model, name).copy() for name in cls._fields))

    def put_into(self, model: SharedModel) -> None:
        """Overwrite `model`; nobody else may write it."""
        for name in self._fields:
            getattr(model, name)[:] = getattr(self, name)

    def not_finite(self, network: Network) -> str:
        """Where it is not finite: "layers.1.weight[3, 5]"; empty if it is."""
        for name in ("params", "first", "second"):
            if (index := first_not_finite(getattr(self, name))) is not None:
                place = network.place(index)
                return place if name == "params" else f"the optimizer's slot of {place}"
        return ""


@dataclass(slots=True)
class Draft:
    """A checkpoint that is to be written."""

    into: Path
    description: Mapping[str, Any]
    arrays: Arrays
    about: Mapping[str, object]  # for the event log

    def write(self) -> str:
        """Write it and remove the oldest; return why that failed, or nothing."""
        try:
            folder.write(self.into, self.arrays, self.description)
        except HogbatchError as error:
            return str(error)
        finally:
            self.arrays = {}  # gigabytes, maybe
        folder.prune(self.into, KEPT)
        return ""


class Snapshots:
    """Copies and checkpoints of one run's model.

    `describe` gives what of the run is not in the coordinator's state, as JSON and as arrays;
    `put_back_also` is called when the model has been put back.
    """

    def __init__(
        self,
        model: SharedModel,
        network: Network,
        into: Path,
        describe: Callable[[], tuple[dict[str, Any], Arrays]],
        put_back_also: Callable[[], None],
    ) -> None:
        self._model, self._network, self._into = model, network, into
        self._describe, self._put_back_also = describe, put_back_also
        self._last: ModelCopy | None = None

    def draft(self, saved: Saved) -> Draft:
        """Begin a checkpoint, with all that stands now and is not the model."""
        description, arrays = self._describe()
        about = {"epoch": saved.epoch, "rows": saved.rows, "seconds": round(saved.seconds, 4)}
        return Draft(self._into, {**description, "state": asdict(saved)}, arrays, about)

    def copy(self, draft: Draft | None = None) -> str:
        """Copy the model, for `draft` too; or return where it is not finite."""
        taken = ModelCopy.of(self._model)
        if where := taken.not_finite(self._network):
            return where
        self._last = taken
        if draft is not None:
            draft.arrays.update(taken._asdict())
        return ""

    def put_back(self) -> None:
        """Put the last copy in the model's place; nobody may write it meanwhile."""
        if self._last is not None:
            self._last.put_into(self._model)
            self._put_back_also()
