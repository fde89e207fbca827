"""Adapters of the coordinator of several servers: models, snapshots, the moving mean."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.channel import LOST, ServersChannel
from hogbatch.cluster.host import MODEL_ARRAYS, ModelArrays
from hogbatch.coordinator.adapters import CheckpointAdapter
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.recorder import RunRecorder
from hogbatch.events.records import Evaluation
from hogbatch.run.checkpoint.snapshots import Snapshots
from hogbatch.store.model import SharedModel
from hogbatch.wire.messages import UseMean, UseModel

Keep = Callable[[Evaluation | None, NDArray[np.float32] | None], object]


class ModelOfServers:
    """Copies the model of all servers to `model`, which is in this process, and back."""

    def __init__(self, model: SharedModel, channel: ServersChannel) -> None:
        self._model, self._channel = model, channel

    def load(self, worker: str, source: str | None) -> str | None:
        """Write the model of server `source`, or of this process, to server `worker`.

        Returns why that failed, if it did.
        """
        channel = self._channel
        target, origin = channel.handle(worker), None if source is None else channel.handle(source)
        if target is None:
            return f"server {worker} has ended"
        if source is not None and origin is None:
            return f"server {source} has ended"
        try:
            target.write_model(origin.read_model() if origin else self._own())
        except LOST as error:
            return f"its model could not be written: {error}"
        return None

    def pull(self) -> None:
        """Overwrite the model of this process by that of the servers, once they have been given it.

        ConnectionError if none of them can be reached.
        """
        if not self._channel.gave_model:
            return
        if (arrays := self._channel.read_model()) is None:
            raise ConnectionError("no server that has the model can be reached")
        for name in MODEL_ARRAYS:
            getattr(self._model, name)[:] = arrays[name]

    def push(self) -> None:
        """Overwrite the models of all servers, which train on nothing now, by this process's."""
        arrays = self._own()
        for handle in self._channel.loaded:
            try:
                handle.write_model(arrays)
            except LOST:
                continue  # it will be reported as lost
            self._channel.send(handle.key, UseModel())

    def show_kept(self, recorder: RunRecorder, shown: bool) -> None:
        """Let all servers evaluate the kept model. They train no more, so it stays theirs."""
        recorder.show_kept(shown)
        if shown:
            self.push()

    def _own(self) -> ModelArrays:
        return {name: getattr(self._model, name) for name in MODEL_ARRAYS}


class SnapshotsOfServers:
    """Snapshots of the model that all servers have (SnapshotAdapter)."""

    def __init__(self, snapshots: Snapshots, model: ModelOfServers) -> None:
        self._snapshots, self._model = snapshots, model

    def draft(self, saved: SavedState) -> CheckpointAdapter:
        return self._snapshots.draft(saved)

    def copy(self, draft: Any) -> str | None:
        self._model.pull()
        return self._snapshots.copy(draft)

    def roll_back(self) -> None:
        self._snapshots.roll_back()
        self._model.push()


class MeanOfServers:
    """The moving mean, which each server computes; all have the same.

    It is copied to this process while the servers evaluate it, so that training, which goes on when
    it was kept, does not wait for that.
    """

    def __init__(self, keep: Keep, channel: ServersChannel) -> None:
        self._keep, self._channel = keep, channel
        self._reader = ThreadPoolExecutor(1)
        self._read: Future[NDArray[np.float32] | None] | None = None  # while it is shown

    def show(self, shown: bool) -> None:
        """Let all servers evaluate the mean, or the model again."""
        for handle in self._channel.loaded:
            self._channel.send(handle.key, UseMean(shown))
        self._read = self._reader.submit(self._channel.read_mean) if shown else None

    def keep(self, evaluation: Evaluation | None) -> None:
        """Keep the parameters of this process, or the mean while it is shown."""
        self._keep(evaluation, self._read.result() if self._read else None)

    def close(self) -> None:
        self._reader.shutdown(wait=False)
