"""The process of one server of several: its workers, their coordinator, and its merges.

    python -m hogbatch.cluster.server --inherited FD,FD,FD --run-dir DIR --launched PID

The descriptors are those of the sockets of frames and of the relay, and of the data.

For the coordinator of all servers, this process is a worker that connects over ZeroMQ. The process
that starts it (:mod:`hogbatch.cluster.host`) tells it how, and who the other servers are.
"""

import argparse
import json
import os
import socket
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.divided.reading import ServerRows
from hogbatch.cluster.divided.records import files_in
from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.model_merges import ModelMerges
from hogbatch.cluster.planes import nixl
from hogbatch.cluster.planes.base import Plane
from hogbatch.cluster.planes.relayed import RelayedPlane
from hogbatch.cluster.server_figures import FIGURES_FILE, figures_of
from hogbatch.cluster.start import ServerMemory, ServerStart
from hogbatch.cluster.supplied import BEAT_S, SuppliedCoordinator
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest, parse_workers
from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import Actions, Answer, Finish, MergeStep, Quarantine, Revoke
from hogbatch.coordinator.loop import Loop
from hogbatch.data.cache import DataCache
from hogbatch.data.raw import ReadOptions
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.events.event_log import EventLog
from hogbatch.events.names import EVENTS, SUMMARY
from hogbatch.events.records import RunTotals
from hogbatch.machine.files import replace_file
from hogbatch.machine.process import die_with, exit_after
from hogbatch.model.network import Network
from hogbatch.policy.choose import find
from hogbatch.run.launch.find import check_workers
from hogbatch.run.launch.local import log_name
from hogbatch.run.policy_limit import limited
from hogbatch.run.processes import launched_workers, open_planes
from hogbatch.run.rundir import RunDirectory
from hogbatch.run.segments import RunSegments, TrainingRows
from hogbatch.store.segment import Segment
from hogbatch.version import version
from hogbatch.wire.codec import decode_to_worker, encode as encode_message
from hogbatch.wire.messages import (
    Done,
    Failed,
    Heartbeat,
    Hello,
    Lease,
    Refused,
    ServerWorkers,
    Stop,
    ToWorker,
    Welcome,
)
from hogbatch.wire.sockets import Dealer

T = TypeVar("T")

ANSWER_WITHIN_S: Final = 30.0  # of the coordinator of all servers


def join_run(dealer: Dealer, start: ServerStart, requests: tuple[WorkerRequest, ...]) -> Welcome:
    """Join the run as a worker; ProtocolError if it is refused, or if nobody answers."""
    threads = sum(request.threads for request in requests)
    dealer.send(
        Hello(
            device="server",
            name=f"{socket.gethostname()} ({start.workers})",
            threads=max(1, threads),
            pid=os.getpid(),
            package=version(),
            fingerprint=start.plan.identity.fingerprint,
            parts=start.parts or (),
        )
    )
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while (answer := dealer.receive()) is None:
        if (rest := deadline - time.monotonic()) <= 0.0:
            raise ProtocolError(
                f"the coordinator of all servers at {start.control} has not answered "
                f"within {ANSWER_WITHIN_S:.0f} s: allow TCP connections between all machines"
            )
        dealer.wait(rest)
    match answer:
        case Welcome() as welcome:
            return welcome
        case Refused(reason):
            raise ProtocolError(f"the run has refused this server: {reason}")
        case other:
            raise ProtocolError(f"expected a Welcome; got {type(other).__name__}")


def while_alive(dealer: Dealer, call: Callable[[], T]) -> T:
    """Call `call`, which may take long, and tell the coordinator that this server is alive."""
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(call)
        while not wait([called], BEAT_S).done:
            dealer.send(Heartbeat())
        return called.result()


@dataclass(frozen=True, slots=True)
class Upstream:
    """The coordinator of all servers, as the loop of this server's coordinator sees it."""

    _state: SuppliedCoordinator
    _background: BackgroundTasks
    _dealer: Dealer  # connected with the coordinator of all servers
    _frames: FrameSocket  # connected with the process that started us
    _merges: ModelMerges
    _own: ServerRows | None  # rows of this server; None: it has all

    def events(self) -> Iterator[Event]:
        """Yield the events of the orders received since the last call."""
        for order in self._receive():
            yield partial(self._state.order, order)

    def _receive(self) -> Iterator[ToWorker]:
        yield from map(decode_to_worker, self._frames.frames())
        if self._frames.ended:
            yield Stop()
        while (message := self._dealer.receive()) is not None:
            own = self._own
            yield message if own is None or not isinstance(message, Lease) else own.local(message)

    @property
    def actions(self) -> Actions:
        """The actions of the commands that only the coordinator of a server gives."""
        return {Answer: self._answer, MergeStep: self._exchange}

    def _answer(self, command: Answer) -> None:
        message = command.message
        if self._own is not None and isinstance(message, Done):
            message = structs.replace(message, skipped_row=0)  # its number is not that in all rows
        self._dealer.send(message)

    def _exchange(self, step: MergeStep) -> None:
        self._merges.abort()
        merges, exchanged = self._merges, self._state.exchanged
        self._background.exchanges.submit(lambda: partial(exchanged, step, merges.carry_out(step)))


def serve(
    frames: FrameSocket, relay: FrameSocket, data: Segment, start: ServerStart, run_dir: Path
) -> int:
    """Train until the coordinator of all servers ends the run; return the exit code.

    `frames` are to the process that has started this one, `relay` to the one that writes to other
    servers. `data` has the sets of rows, or the files of divided data.
    """
    config = merge_sources(tomllib.loads(start.settings))
    requests = _workers(start)
    with ExitStack() as cleanup:
        dealer = cleanup.enter_context(closing(Dealer(start.control, start.keys, start.identity)))
        welcome = join_run(dealer, start, requests)
        given = start.features, welcome.layers, welcome.loss, welcome.backbone
        network = Network.described(*given)
        logs = [log_name(number) for number in range(len(requests))]
        directory = cleanup.enter_context(RunDirectory.hold(run_dir, logs))
        reading = ReadOptions.of(config), DataCache.of(config.data_cache)
        own = None if start.parts is None else ServerRows(files_in(data), start.parts)
        segments = RunSegments(
            data if own is None else while_alive(dealer, partial(own.read, *reading)),
            _rows(start, config, own),
            network,
            OPTIMIZERS[config.optimizer].slots,
            run_dir,
        )
        cleanup.callback(segments.close)
        buffers = ExchangeBuffers.create(network.parameters)
        cleanup.callback(buffers.close)
        plane = _open_plane(config.plane, buffers, RelayedPlane(relay, start.relay))
        cleanup.callback(plane.close)
        shared = segments.shared.fd, segments.shared.layout
        memory = ServerMemory(*shared, buffers.segment.fd, buffers.segment.layout)
        frames.send(msgspec.msgpack.encode(memory))
        merges = ModelMerges(segments.model, _tensors(network), buffers, plane, welcome.worker)
        combine = config.events == "combined"
        log = cleanup.enter_context(closing(EventLog(run_dir / EVENTS, combine=combine)))
        policy = limited(find(config.policy)(start.policy), log.write)
        coordinator = SuppliedCoordinator(
            start.plan, policy, address=plane.address, plane=plane.name, servers=config.servers
        )
        router, published = cleanup.enter_context(
            open_planes(run_dir, segments, directory.run_lock)
        )
        router.watch(dealer)
        router.watch(frames.fileno())
        launcher = cleanup.enter_context(launched_workers(requests, run_dir, config.pin))
        adapters = Adapters(
            endpoint=router,
            attached_by=published.attached_by,
            processes=launcher,
            shuffle=segments.shuffle,
            record=log.write,
            write_due=log.write_due,
        )
        background = BackgroundTasks()
        upstream = Upstream(coordinator, background, dealer, frames, merges, own)
        actions: Actions = {
            Revoke: lambda it: segments.fences.revoke(it.number),
            Quarantine: lambda it: segments.quarantine(it.epoch, it.start, it.stop),
            **upstream.actions,
        }
        finish, totals = Loop(
            coordinator, adapters, background, actions=actions, orders=upstream.events
        ).run()
        figures = figures_of(coordinator.roster, totals.seconds)
        write_results(run_dir, finish, totals, figures)
    return 0 if finish.status != "failed" else ProtocolError.exit_code


def _tensors(network: Network) -> list[slice]:
    """The ranges of the tensors in the parameters, each with the padding after it."""
    starts = [tensor.offset for tensor in network.tensors()]
    return [slice(*pair) for pair in pairwise([*starts, network.parameters])]


def _open_plane(wanted: str, buffers: ExchangeBuffers, relay: RelayedPlane) -> Plane:
    """The plane that is `wanted`; "auto": NIXL if it is installed, else the relay.

    UsageError if NIXL is wanted but cannot be used.
    """
    if wanted != "relay":
        why_not = nixl.unavailable()
        if why_not is None:
            return nixl.NixlPlane(buffers)
        if wanted == "nixl":
            raise UsageError(f"NIXL cannot be used: {why_not}")
    return relay


def _rows(start: ServerStart, config: TrainConfig, own: ServerRows | None) -> TrainingRows:
    known = start.features, start.plan.identity.fingerprint, config.seed
    if own is not None:
        rows = sum(count for _, count in own.parts)
        return TrainingRows(rows, *known, mean_square=start.mean_square, parts=own.parts)
    plan = start.plan
    evaluated = max(plan.validation_rows, plan.test_rows)
    return TrainingRows(plan.train_rows, *known, start.mean_square, evaluated=evaluated)


def _workers(start: ServerStart) -> tuple[WorkerRequest, ...]:
    requests = parse_workers(start.workers)
    assert requests != "auto", "the process that starts a server knows its processors"
    return check_workers(requests)[0]


def write_results(run_dir: Path, finish: Finish, totals: RunTotals, figures: ServerWorkers) -> None:
    """Write the summary of this server and its last `figures`; if it cannot, print one sentence."""
    summary: Mapping[str, Any] = {
        "status": finish.status,
        "reason": finish.reason or "",
        "train_seconds": totals.seconds,
        "rows": totals.rows,
        "workers": [asdict(worker) for worker in totals.workers],
        "faults": asdict(totals.faults),
    }
    text = json.dumps(summary, indent=2) + "\n"
    try:
        replace_file(run_dir / SUMMARY, [text.encode()])
        replace_file(run_dir / FIGURES_FILE, [encode_message(figures)])
    except OSError as error:  # the run has its results elsewhere
        with suppress(OSError):  # the log is on the same disk
            print(f"hogbatch server: cannot write the summary: {error}", file=sys.stderr)


def main() -> None:
    """Run the server that the arguments describe, then exit."""
    parser = argparse.ArgumentParser(prog="hogbatch.cluster.server", allow_abbrev=False)
    parser.add_argument("--inherited", required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--launched", type=int, required=True)
    options = parser.parse_args()
    die_with(options.launched)
    frames_fd, relay, data_fd = map(int, options.inherited.split(","))
    frames = FrameSocket(frames_fd)

    def work() -> int:
        start = msgspec.msgpack.decode(frames.wait(), type=ServerStart)
        data = Segment.attach(data_fd, start.data, writable=False)
        return serve(frames, FrameSocket(relay), data, start, options.run_dir)

    exit_after("server", work, lambda text: frames.send(encode_message(Failed(text[:1000]))))


if __name__ == "__main__":
    main()
