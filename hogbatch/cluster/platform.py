"""A run on several servers, with the models, snapshots and moving mean of its coordinator."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.channel import LOST, ServersChannel
from hogbatch.cluster.decisions.division import divide
from hogbatch.cluster.divided.decide import DividedData
from hogbatch.cluster.host import MODEL_ARRAYS, ModelArrays
from hogbatch.cluster.server_figures import FIGURES_FILE
from hogbatch.cluster.servers import Cluster
from hogbatch.cluster.start import ServerStart, plan_of_server
from hogbatch.cluster.surveys import survey_folder
from hogbatch.config.sets import SET_NAMES
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest, parse_workers
from hogbatch.coordinator import commands
from hogbatch.coordinator.merge_pace import LEASE_S, MERGES_PER_EPOCH, MergeSettings
from hogbatch.coordinator.merges import Merges
from hogbatch.coordinator.plan import Plan
from hogbatch.data.source import shown
from hogbatch.events.event import Evaluation, WorkersOfServer
from hogbatch.events.names import SERVERS
from hogbatch.events.recorder import RunRecorder
from hogbatch.machine.files import replace_file
from hogbatch.model.network import Network
from hogbatch.policy.choose import Factory
from hogbatch.policy.fixed import Fixed
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.checkpoint.snapshots import Snapshots
from hogbatch.run.components import Outcome, RunComponents
from hogbatch.run.planning import policy_settings
from hogbatch.run.platform import Platform
from hogbatch.store.model import SharedModel
from hogbatch.views.console import Console
from hogbatch.wire.codec import decode_to_coordinator
from hogbatch.wire.messages import ServerWorkers, UseMean, UseModel
from hogbatch.wire.sockets import Router

KeepParams = Callable[[Evaluation | None, NDArray[np.float32] | None], object]


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

    def roll_back(self, snapshots: Snapshots) -> None:
        """Restore the last snapshot, and let all servers train on it."""
        snapshots.roll_back()
        self.push()

    def show_kept(self, recorder: RunRecorder, shown: bool) -> None:
        """Let all servers evaluate the kept model. They train no more, so it stays theirs."""
        recorder.show_kept(shown)
        if shown:
            self.push()

    def _own(self) -> ModelArrays:
        return {name: getattr(self._model, name) for name in MODEL_ARRAYS}


class MeanOfServers:
    """The moving mean, which each server computes; all have the same.

    It is copied to this process while the servers evaluate it, so that training, which goes on when
    it was kept, does not wait for that.
    """

    def __init__(self, keep: KeepParams, channel: ServersChannel) -> None:
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


@dataclass(slots=True)
class SeveralServers(Platform):
    """Trains on the servers of `cluster`, whose models are merged."""

    cluster: Cluster
    callbacks: Callbacks = field(default_factory=Callbacks)
    _server_plan: Plan | None = None
    _divided: DividedData | None = None

    @property
    def marks(self) -> Mapping[str, Any]:
        return {"servers": self.cluster.size}

    def choose_workers(self, config: TrainConfig, console: Console) -> tuple[WorkerRequest, ...]:
        for line in self.cluster.lines:
            console.say(line)
        return ()

    def read_divided(self, config: TrainConfig, console: Console) -> DividedData:
        """Survey the files of the folder that `config` names on the machines of the servers."""
        console.busy("reading the data on the servers")
        self._divided = survey_folder(config, self.cluster.size, self.cluster.survey)
        for note in self._divided.notes:
            console.say(note)
        return self._divided

    def policy(self, chosen: Factory) -> Factory:
        return Fixed

    def plan(self, config: TrainConfig, plan: Plan, network: Network) -> Plan:
        self._server_plan = plan
        rows = config.merge_rows or max(1, plan.train_rows // MERGES_PER_EPOCH)
        merging = MergeSettings(rows, network.parameters, config.server_merge)
        plan = replace(
            plan,
            merging=partial(Merges, merging),
            lease_seconds=LEASE_S,
            start_with=self.cluster.size,
        )
        if (data := self._divided) is None:
            return plan
        by_set = {name: tuple(part.rows_of(name) for part in data.parts) for name in SET_NAMES}
        parts = {name: each for name, each in by_set.items() if any(each)}
        names = tuple(shown(part.path) for part in data.parts)
        return replace(plan, parts=parts, part_names=names)

    def run(self, components: RunComponents, workers: tuple[WorkerRequest, ...]) -> Outcome:
        setup, segments = components.setup, components.segments
        with ExitStack() as cleanup:
            router = Router(setup.run_dir, listen=self.cluster.listen)
            cleanup.callback(router.close)
            start = partial(self._start, components, router)
            channel = ServersChannel(self.cluster, router, start, segments.scores)
            cleanup.callback(channel.close)
            self.cluster.begin(segments.data, channel.failed)
            model = ModelOfServers(segments.model, channel)
            mean = MeanOfServers(components.keep, channel)
            cleanup.callback(mean.close)
            channel.begin()
            actions: commands.Actions = {
                commands.Revoke: lambda it: channel.revoke(it.number),
                commands.RollBack: lambda _: model.roll_back(components.snapshots),
                commands.ShowMean: lambda it: mean.show(it.shown),
                commands.ShowKept: lambda it: model.show_kept(components.recorder, it.shown),
                commands.Keep: lambda it: mean.keep(it.evaluation),
            }
            finish, totals = components.run_loop(
                channel,
                channel,
                self.callbacks,
                actions=actions,
                pull=model.pull,
                load_server=model.load,
            )
            for key, name, files in channel.stop():
                _write(setup.run_dir / SERVERS / name, files, components.console)
                _record_last(components, key, files)
        return Outcome(finish, totals.with_refused(router.refused, router.rejected))

    def close(self) -> None:
        self.cluster.close()

    def _start(self, components: RunComponents, router: Router, index: int, key: str) -> bytes:
        """The encoded ServerStart of server `index`, which gets `key`."""
        setup, data = components.setup, components.setup.data
        assert self._server_plan is not None, "plan comes first"
        workers = self.cluster.workers(index)
        count = len(parse_workers(workers))
        start = ServerStart(
            control=router.address,
            keys=router.keys,
            identity=bytes.fromhex(key),
            settings=setup.settings,
            workers=workers,
            plan=plan_of_server(self._server_plan, count),
            policy=policy_settings(setup.config, data, setup.network),
            data=components.segments.data.layout,
            parts=self._parts(setup.config, index),
            features=data.train_sizes.features,
            mean_square=data.mean_square,
            relay=self.cluster.relay,
        )
        return msgspec.msgpack.encode(start)

    def _parts(self, config: TrainConfig, index: int) -> tuple[int, ...] | None:
        """The parts of divided data that server `index` has; None: it has all rows."""
        if self._divided is None or config.data_copies is None:
            return None
        rows = [part.train.rows for part in self._divided.parts]
        return divide(rows, self.cluster.size, config.data_copies)[index]


def _record_last(components: RunComponents, key: str, files: Mapping[str, bytes]) -> None:
    server = components.coordinator.workers.get(key)
    if server is not None and FIGURES_FILE in files:
        figures = decode_to_coordinator(files[FIGURES_FILE])
        assert isinstance(figures, ServerWorkers), "the server has written these"
        told = WorkersOfServer(server.name, list(figures.workers), figures.others)
        components.recorder.record(told)


def _write(folder: Path, files: Mapping[str, bytes], console: Console) -> None:
    """Write the files of a server's run directory; a failure must not cost the model of the run."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            if name != FIGURES_FILE:
                replace_file(folder / name, [content])
    except OSError as error:
        console.say(f"cannot write the files of a server to {folder}: {error.strerror}")
