"""Rehearsals of several servers, which train on parts of the data and merge their models.

Each server has a coordinator, workers, a copy of the model and every Nth row of the training set.
All are simulated under one clock. The first server is the run that is shown: it evaluates its copy
of the model, and the rehearsal ends with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.decisions.link import ServerLink, predicted_merge
from hogbatch.cluster.decisions.merging import merge_weights, sum_scales
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.data.batch import Examples
from hogbatch.data.load import LoadedData
from hogbatch.data.order import take
from hogbatch.data.scale import scaled
from hogbatch.errors import UsageError
from hogbatch.machine.temporary import TemporaryDirectory
from hogbatch.run.checkpoint.snapshots import ModelCopy
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.setup import load_data
from hogbatch.run.training import open_run
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.hardware.description import Server
from hogbatch.simulate.rehearsal.rehearsal import Rehearsal
from hogbatch.views.console import Console, PlainConsole

Floats = NDArray[np.float32]

POLL_S: Final = 1e-4  # simulated seconds between two checks whether a merge is due
UNLIMITED: Final = 1_000_000_000  # epochs, and seconds between evaluations, of the other servers


class RehearsedMerges:
    """Merges the models of `runs` in the background, at simulated times.

    While the changes since the last merge are on their way, the servers train on. Then each adds
    what the others have changed. Optimizer slots stay with the server that they belong to.
    """

    def __init__(
        self, runs: Sequence[RunComponents], queue: EventQueue, link: ServerLink, rows_between: int
    ) -> None:
        """Merge after each `rows_between` rows of all servers; their models are equal now."""
        self._runs, self._queue, self._rows_between = runs, queue, rows_between
        self._rule = runs[0].setup.config.server_merge
        self.merges = 0
        self._merged = runs[0].segments.model.params.copy()
        self._counted = np.zeros((len(runs), 2), np.int64)  # rows and updates
        self._seconds = predicted_merge(len(self._merged), len(runs), link).seconds

    def begin(self) -> None:
        """Check for the next merge from now on."""
        self._queue.after(POLL_S, self._check)

    @property
    def rows(self) -> int:
        """Rows that all servers have trained on."""
        return sum(run.coordinator.progress.rows for run in self._runs)

    def _check(self) -> None:
        counted = np.array([_rows_and_updates(run) for run in self._runs])
        done = counted - self._counted
        if done[:, 0].sum() < self._rows_between or self._evaluating:
            self.begin()
            return
        self._counted = counted
        changes = [run.segments.model.params - self._merged for run in self._runs]
        weights = self._weights(done)
        self._queue.after(self._seconds, lambda: self._end(changes, weights))

    def _weights(self, done: NDArray[np.int64]) -> list[float]:
        if self._rule != "average":
            return [1.0] * len(done)
        rows, updates = done.T
        batch_sizes = np.maximum(1, rows // np.maximum(1, updates))
        return merge_weights(updates.tolist(), batch_sizes.tolist())

    @property
    def _evaluating(self) -> bool:
        """Whether a model must not change, because it is evaluated or replaced by its mean."""
        return any(run.coordinator.phase in ("inspect", "evaluate", "test") for run in self._runs)

    def _end(self, changes: Sequence[Floats], weights: Sequence[float]) -> None:
        if self._evaluating:
            self._queue.after(POLL_S, lambda: self._end(changes, weights))
            return
        step = np.zeros_like(self._merged)
        for change, weight in zip(changes, weights, strict=True):
            step += np.float32(weight) * change
        if self._rule == "adasum":
            self._scale(changes, step)
        for run, change in zip(self._runs, changes, strict=True):
            params = run.segments.model.params
            params += step - change
        self._merged += step
        self.merges += 1
        self.begin()

    def _scale(self, changes: Sequence[Floats], step: Floats) -> None:
        """Multiply the sum of the changes by the factors of its tensors."""
        starts = [tensor.offset for tensor in self._runs[0].setup.network.tensors()]
        tensors = [slice(*pair) for pair in pairwise([*starts, len(step)])]
        scales = sum_scales(
            [_squares(change, tensors) for change in changes], _squares(step, tensors)
        )
        for tensor, scale in zip(tensors, scales, strict=True):
            step[tensor] *= np.float32(scale)


def _squares(values: Floats, tensors: Sequence[slice]) -> list[float]:
    return [float(np.dot(values[tensor], values[tensor])) for tensor in tensors]


def _rows_and_updates(run: RunComponents) -> tuple[int, int]:
    workers = run.coordinator.workers.values()
    return run.coordinator.progress.rows, sum(worker.updates for worker in workers)


class RehearsalOfServers(Rehearsal):
    """The platform of the first server, which starts the others."""

    def __init__(
        self,
        server: Server,
        observe: Callable[[float, int], object],
        count: int,
        link: ServerLink,
    ) -> None:
        """`count` servers of this kind, with a `link` between any two of them."""
        super().__init__(server, observe)
        self._count, self._link = count, link
        self._data: LoadedData | None = None
        self.merges: RehearsedMerges | None = None

    @property
    def marks(self) -> Mapping[str, Any]:
        return {**super().marks, "servers": self._count}

    def read(self, config: TrainConfig, console: Console) -> LoadedData:
        """Read the data, and return them with the training rows of the first server."""
        self._data = data = load_data(config, console)
        if data.train.rows < self._count:
            raise UsageError(
                f"--servers {self._count}: there are only {data.train.rows} training rows"
            )
        return self._part(0)

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        with ExitStack() as stack:
            runs = [components]
            for number in range(1, self._count):
                runs.append(stack.enter_context(self._other(number, components)))
            assert self._data is not None, "read comes first"
            rows = components.setup.config.merge_rows or max(1, self._data.train.rows // 100)
            self.merges = RehearsedMerges(runs, self._queue, self._link, rows)
            self.merges.begin()
            outcome = super().run(components, workers)
            components.console.say(
                f"{self._count} servers: {self.merges.rows:,} rows in all, "
                f"{self.merges.merges:,} merges"
            )
        return outcome

    @contextmanager
    def _other(self, number: int, first: RunComponents) -> Iterator[RunComponents]:
        """Begin the run of another server; its run directory is temporary."""
        platform = Rehearsal(self._server, queue=self._queue)
        with closing(TemporaryDirectory()) as folder:
            own = replace(
                first.setup.config,
                run_dir=str(folder.path / "run"),
                quiet=True,
                log=(),
                epochs=UNLIMITED,
                eval_seconds=float(UNLIMITED),
                max_seconds=None,
                target_loss=None,
                patience=0,
                average="off",
            )
            console = PlainConsole(quiet=True)
            with open_run(own, platform, lambda *_: self._part(number), console) as opened:
                components = opened.components
                components.segments.start_from(ModelCopy.of(first.segments.model))
                platform.begin(components, opened.workers)
                yield components

    def _part(self, number: int) -> LoadedData:
        """The data with every Nth training row."""
        assert self._data is not None, "read comes first"
        whole, count = self._data.train, self._count
        rows = np.arange(number, whole.rows, count)
        labels = take(whole.labels, rows, whole.targets)
        train = Examples(scaled(whole.inputs, None, rows), labels, whole.features)
        return replace(self._data, sets={**self._data.sets, "train": train})
