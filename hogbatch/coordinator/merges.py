"""The interface of merges, for runs whose workers have models of their own."""

import math
from collections.abc import Iterator, Sequence

from hogbatch.coordinator.commands import Command
from hogbatch.coordinator.worker import Worker
from hogbatch.wire.messages import FromServer, Ready, ServerWorkers


class Merges:
    """The merges of a run whose workers share one model: there are none.

    :class:`hogbatch.cluster.decisions.server_merges.ServerMerges` is that of several servers.
    """

    poisoned: bool = False  # no server has a finite model

    @property
    def settled(self) -> bool:
        """Whether all models are equal, and contain all rows trained on so far."""
        return True

    @property
    def applied(self) -> bool:
        """Whether the models contain all rows that are acknowledged."""
        return True

    @property
    def model_is_lost(self) -> bool:
        """Whether the merged model was lost together with the last server that had it."""
        return False

    def train(self, now: float) -> None:
        """Training begins, or goes on after a pause, with equal models."""

    def copied(self) -> None:
        """This process has a copy of the model."""

    def rolled_back(self) -> None:
        """The last good model is restored; changes since then are discarded."""

    def advance(self, now: float, *, draining: bool, may_load: bool) -> list[Command]:
        """Begin what is due: writing the model to a server, or a merge.

        `draining`: no more rows are handed out before the next merge. `may_load`: the model of a
        server may be copied to another one.
        """
        return []

    def due_at(self, *, draining: bool) -> float:
        """When the next merge begins; infinity if that depends on what servers will have done."""
        return math.inf

    def late(self, now: float) -> Sequence[str]:
        """Keys of the servers that have not answered the current step in time."""
        return ()

    def wait_for_model(self, worker: Worker, ready: Ready) -> bool:
        """Whether `worker`, which is ready otherwise, first needs the model."""
        return False

    def written(self, key: str) -> list[Command]:
        """The model was written to the memory of server `key`."""
        return []

    def not_written(self, key: str) -> bool:
        """Writing the model to server `key` has failed; whether that was its own fault."""
        return False

    def loaded(self, key: str) -> tuple[Ready, list[Command]] | None:
        """Server `key` uses the model: return its Ready; None if it was not given a model."""
        return None

    def receive(
        self, worker: Worker, message: FromServer | ServerWorkers, now: float
    ) -> list[Command]:
        """Handle the answer of `worker` to the current step, or figures of its own workers."""
        return []

    def unusable(self) -> Iterator[tuple[str, str]]:
        """The keys of servers that must be removed after the last answer, and why.

        Each is to be removed before the next one is asked for, because that changes the merge.
        """
        return iter(())

    def removed(self, key: str, now: float) -> list[Command]:
        """Worker `key` has left or is lost; its leases have been taken back."""
        return []
