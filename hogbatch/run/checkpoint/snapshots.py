"""Snapshots of a model during training, for roll-backs and checkpoints."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hogbatch.coordinator.saved_state import SavedState
from hogbatch.errors import HogbatchError, SaveError
from hogbatch.events.event import CheckpointWritten
from hogbatch.model.footprint import LARGE
from hogbatch.model.network import Network
from hogbatch.model.tensors import Arrays
from hogbatch.run.checkpoint import folder
from hogbatch.store.model import SharedModel
from hogbatch.store.scan import first_not_finite

MAX_CHECKPOINTS = 3  # older ones are removed
LARGE_CHECKPOINT = 1 << 28  # bytes; of larger ones, only the last is kept


def find_not_finite(model: SharedModel, network: Network) -> str | None:
    """The location of the first NaN or Inf, such as "layers.1.weight[3, 5]", if any."""
    for name in ("params", "first", "second"):
        if (index := first_not_finite(getattr(model, name))) is not None:
            location = network.place(index)
            return location if name == "params" else f"the optimizer's slot of {location}"
    return None


@dataclass(slots=True)
class PendingCheckpoint:
    """A checkpoint to be written."""

    into: Path
    description: Mapping[str, Any]
    arrays: Arrays
    about: CheckpointWritten  # for the event log
    expect_in_place: Callable[[], None] = lambda: None  # raises SaveError, then nothing is written
    done: bool = False  # whether it was written, or could not be
    _failure: str | None = None  # why it could not be written

    def write(self, find_nonfinite: Callable[[], str | None] = lambda: None) -> str | None:
        """Write the checkpoint once and remove old ones; return an error message if that failed.

        `find_nonfinite` is called after writing, for arrays that change meanwhile; it returns the
        place of the first NaN or Inf.
        """
        if self.done:
            return self._failure

        def check() -> None:
            if where := find_nonfinite():
                raise SaveError(f"not saving a checkpoint of a model with NaN or Inf at {where}")

        size = sum(array.nbytes for array in self.arrays.values())
        try:
            self.expect_in_place()
            folder.write(self.into, self.arrays, self.description, check)
            folder.prune(self.into, checkpoints_kept(size))
        except HogbatchError as error:
            self._failure = str(error)
        finally:
            self.arrays, self.done = {}, True  # free memory, possibly gigabytes
        return self._failure


def checkpoints_kept(size: int) -> int:
    """How many checkpoints of `size` bytes a run keeps."""
    return MAX_CHECKPOINTS if size <= LARGE_CHECKPOINT else 1


class Snapshots:
    """Snapshots and checkpoints of one run's model.

    `describe` returns the state of the run that is not in the coordinator's state, as JSON and as
    arrays; `initialise` writes the initial weights into the model; `after_roll_back` is called
    after the model was restored.

    No snapshot is kept of models larger than LARGE, because a copy may not fit into memory: the
    shared model is checked for NaN and Inf in place, checkpoints are written directly from it, and
    a roll-back restores the last checkpoint.
    """

    def __init__(
        self,
        model: SharedModel,
        network: Network,
        into: Path,
        describe: Callable[[], tuple[dict[str, Any], Arrays]],
        initialise: Callable[[], None],
        after_roll_back: Callable[[], None],
        expect_in_place: Callable[[], None] = lambda: None,
    ) -> None:
        self._model, self._network, self._into = model, network, into
        self._describe, self._initialise = describe, initialise
        self._after_roll_back, self._expect_in_place = after_roll_back, expect_in_place
        self._large = sum(array.nbytes for array in model.arrays.values()) > LARGE
        self._copies: list[SharedModel] = []
        self._last: SharedModel | None = None  # of these copies
        # The last one, which may not have been written yet, and which of these copies it has.
        self._checkpoint: PendingCheckpoint | None = None
        self._written: SharedModel | None = None

    def draft(self, saved: SavedState) -> PendingCheckpoint:
        """Begin a checkpoint with the current state, without the model."""
        description, arrays = self._describe()
        about = CheckpointWritten(saved.epoch, saved.rows, round(saved.seconds, 4))
        state = {**description, "state": asdict(saved)}
        return PendingCheckpoint(self._into, state, arrays, about, self._expect_in_place)

    def copy(self, draft: PendingCheckpoint | None = None) -> str | None:
        """Take a snapshot, also for `draft`; return the place of the first NaN or Inf, if any."""
        taken = self._model if self._large else self._taken()
        if where := find_not_finite(taken, self._network):
            return where
        if not self._large:
            self._last = taken
        if draft is not None:
            draft.arrays.update(taken.arrays)
            self._checkpoint, self._written = draft, taken
            if self._large:  # immediately: an evaluation, which may show the mean, waits for this
                draft.write(lambda: find_not_finite(taken, self._network))
        return None

    def _taken(self) -> SharedModel:
        """Copy the model into memory that is no longer in use; the first call allocates two copies.

        Writing to new memory takes several times as long, and from the second call on training
        waits.
        """
        while len(self._copies) < 2:
            self._copies.append(self._model.copy())
        pending = self._checkpoint is not None and not self._checkpoint.done
        used = self._last, self._written if pending else None
        taken = next((copy for copy in self._copies if all(copy is not n for n in used)), None)
        if taken is None:
            taken = self._model.copy()
            self._copies.append(taken)
        else:
            taken.assign(self._model)
        return taken

    def roll_back(self) -> None:
        """Restore the model from the last snapshot; no worker may write it meanwhile."""
        if self._last is not None:
            self._model.assign(self._last)
        elif folder.newest_intact(self._into, self._model.arrays)[0] is None:
            self._initialise()
        self._after_roll_back()
