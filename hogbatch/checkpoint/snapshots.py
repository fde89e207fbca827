"""Copies of a model in training: what a run goes back to, and what checkpoints are made of."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.checkpoint import folder
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.errors import HogbatchError, SaveError
from hogbatch.model.footprint import LARGE
from hogbatch.model.network import Network
from hogbatch.store.model import SharedModel
from hogbatch.store.scan import first_not_finite

KEPT = 3  # checkpoints
Arrays = dict[str, NDArray[Any]]
Saving = Callable[[], AbstractContextManager[None]]  # surrounds each write; may raise SaveError


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

    @classmethod
    def views(cls, model: SharedModel) -> "ModelCopy":
        """`model` itself, which goes on changing."""
        return cls(*(getattr(model, name) for name in cls._fields))

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return sum(array.nbytes for array in self)

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
class PendingCheckpoint:
    """A checkpoint that is to be written."""

    into: Path
    description: Mapping[str, Any]
    arrays: Arrays
    about: Mapping[str, object]  # for the event log
    saving: Saving = nullcontext
    _outcome: str | None = None  # once it is written

    def write(self, look_through: Callable[[], str] = lambda: "") -> str:
        """Write it, unless it is written, and remove the oldest; return why that failed, if so.

        Of arrays that change meanwhile `look_through` says where they are not finite, after all.
        """
        if self._outcome is None:
            self._outcome = self._write(look_through)
        return self._outcome

    def _write(self, look_through: Callable[[], str]) -> str:
        def check() -> None:
            if where := look_through():
                raise SaveError(f"no checkpoint is made of a model that is not finite at {where}")

        try:
            with self.saving():
                folder.write(self.into, self.arrays, self.description, check)
        except HogbatchError as error:
            return str(error)
        finally:
            self.arrays = {}  # gigabytes, maybe
        folder.prune(self.into, KEPT)
        return ""


class Snapshots:
    """Copies and checkpoints of one run's model.

    `describe` gives what of the run is not in the coordinator's state, as JSON and as arrays;
    `begin` puts the first weights into the model; `put_back_also` is called when the model has been
    put back.

    Of a LARGE model no copy is kept in memory, where it may not fit a second time: it is looked
    through where it lies, checkpoints are written from there, and it is put back from the last one.
    """

    def __init__(
        self,
        model: SharedModel,
        network: Network,
        into: Path,
        describe: Callable[[], tuple[dict[str, Any], Arrays]],
        begin: Callable[[], None],
        put_back_also: Callable[[], None],
        saving: Saving = nullcontext,
    ) -> None:
        self._model, self._network, self._into = model, network, into
        self._describe, self._begin, self._put_back_also = describe, begin, put_back_also
        self._saving = saving
        self._large = ModelCopy.views(model).nbytes > LARGE
        self._last: ModelCopy | None = None

    def draft(self, saved: SavedState) -> PendingCheckpoint:
        """Begin a checkpoint, with all that stands now and is not the model."""
        description, arrays = self._describe()
        about = {"epoch": saved.epoch, "rows": saved.rows, "seconds": round(saved.seconds, 4)}
        state = {**description, "state": asdict(saved)}
        return PendingCheckpoint(self._into, state, arrays, about, self._saving)

    def copy(self, draft: PendingCheckpoint | None = None) -> str:
        """Copy the model, for `draft` too; or return where it is not finite."""
        views = ModelCopy.views(self._model)
        taken = views if self._large else ModelCopy.of(self._model)
        if where := taken.not_finite(self._network):
            return where
        if not self._large:
            self._last = taken
        if draft is not None:
            draft.arrays.update(taken._asdict())
            if self._large:  # here and now: an evaluation, which may show the mean, waits for this
                draft.write(lambda: views.not_finite(self._network))
        return ""

    def put_back(self) -> None:
        """Put the last copy in the model's place; nobody may write it meanwhile."""
        if self._last is not None:
            self._last.put_into(self._model)
        elif folder.newest_good(self._into, ModelCopy.views(self._model)._asdict())[0] is None:
            self._begin()
        self._put_back_also()
