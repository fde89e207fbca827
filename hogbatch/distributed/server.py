"""The process of one server of several: its workers, their coordinator, and its merges.

    python -m hogbatch.distributed.server --socket FD --run-dir DIR --launched PID

The process that starts it (:mod:`hogbatch.distributed.host`) passes on the messages of the
coordinator of all servers, for which this process is a worker.
"""

import argparse
import json
import logging
import os
import socket
import sys
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hogbatch.checkpoint.names import EVENTS, SUMMARY
from hogbatch.checkpoint.rundir import RunDirectory
from hogbatch.config.sources import merge_sources
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest, parse_workers
from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.commands import Finish, MergeStep
from hogbatch.coordinator.loop import Loop
from hogbatch.coordinator.supplied import SuppliedCoordinator
from hogbatch.distributed.buffers import ExchangeBuffers
from hogbatch.distributed.frames import FrameSocket
from hogbatch.distributed.model_merges import ModelMerges
from hogbatch.distributed.planes.choose import open_plane
from hogbatch.distributed.start import ServerMemory, ServerStart, decode_start, encode
from hogbatch.errors import HogbatchError, ProtocolError, UsageError
from hogbatch.launch.find import check_workers
from hogbatch.launch.local import log_name
from hogbatch.machine.printable import printable_lines
from hogbatch.machine.process import die_with
from hogbatch.model.network import Network
from hogbatch.model.optimizers import OPTIMIZERS
from hogbatch.policy.choose import find
from hogbatch.run.processes import launched_workers, open_planes
from hogbatch.run.segments import RunSegments, TrainingRows
from hogbatch.store.segment import Segment
from hogbatch.telemetry.event_log import EventLog
from hogbatch.telemetry.records import RunTotals
from hogbatch.version import version
from hogbatch.wire.codec import decode_to_worker, encode as encode_message
from hogbatch.wire.messages import Failed, Hello, Refused, Stop, ToCoordinator, ToWorker, Welcome


class Upstream:
    """The coordinator of all servers, as this server's coordinator sees it (UpstreamAdapter)."""

    def __init__(self, frames: FrameSocket, merges: ModelMerges) -> None:
        self._frames, self._merges = frames, merges

    def fileno(self) -> int:
        return self._frames.fileno()

    def receive(self) -> Iterator[ToWorker]:
        yield from map(decode_to_worker, self._frames.frames())
        if self._frames.ended:
            yield Stop()

    def send(self, message: ToCoordinator) -> None:
        with suppress(OSError):  # the other process has ended, and so will this one
            self._frames.send(encode_message(message))

    def exchange(self, asked: MergeStep) -> ToCoordinator | None:
        return self._merges.carry_out(asked)

    def interrupt_exchange(self) -> None:
        self._merges.abort()


class NoSnapshots:
    """The coordinator of all servers takes snapshots and writes checkpoints, not a server."""

    kept = False

    def draft(self, saved: object) -> Any:
        raise AssertionError("a server writes no checkpoints")

    def copy(self, draft: object) -> str:
        raise AssertionError("a server takes no snapshots")

    def roll_back(self) -> None:
        raise AssertionError("a server does not roll back")


class Inherited(NamedTuple):
    """What the process has inherited."""

    frames: FrameSocket  # to the coordinator of all servers
    relay: FrameSocket  # to the process that writes to other servers
    data: Segment  # the training and test set
    weights: Segment | None  # of the rows


def serve(inherited: Inherited, start: ServerStart, run_dir: Path) -> int:
    """Train until the coordinator of all servers ends the run; return the exit code."""
    frames = inherited.frames
    config = merge_sources(tomllib.loads(start.settings))
    requests = _workers(start)
    welcome = _join(frames, start, requests)
    network = Network(start.features, welcome.layers, welcome.loss)
    with ExitStack() as cleanup:
        logs = [log_name(number) for number in range(len(requests))]
        directory = cleanup.enter_context(RunDirectory.hold(run_dir, logs))
        segments = RunSegments(
            inherited.data,
            _rows(start, config, inherited.weights),
            network,
            OPTIMIZERS[config.optimizer].slots,
            run_dir,
        )
        cleanup.callback(segments.close)
        buffers = ExchangeBuffers.create(network.parameters, servers=start.servers)
        cleanup.callback(buffers.close)
        plane = open_plane(start.plane, buffers, inherited.relay, start.relay)
        cleanup.callback(plane.close)
        memory = ServerMemory(segments.shared.fd, segments.shared.layout, buffers.fd, plane.name)
        frames.send(encode(memory))
        merges = ModelMerges(segments.model, _tensors(network), buffers, plane, welcome.worker)
        policy = find(config.policy)(start.policy)
        coordinator = SuppliedCoordinator(
            start.plan, policy, address=plane.address, plane=plane.name
        )
        log = EventLog(run_dir / EVENTS)
        cleanup.callback(log.close)

        def record(event: str, fields: Mapping[str, object]) -> None:
            log.write(event, fields)

        router, segment_server = cleanup.enter_context(
            open_planes(config, run_dir, segments, directory.run_lock)
        )
        launcher = cleanup.enter_context(launched_workers(requests, run_dir, config.pin))
        adapters = Adapters(
            endpoint=router,
            segment_server=segment_server,
            fences=segments.fences,
            processes=launcher,
            snapshots=NoSnapshots(),
            shuffle=segments.shuffle,
            quarantine=segments.quarantine,
            record=record,
            report=_nothing,
            show_mean=_nothing,
            keep=_nothing,
            upstream=Upstream(frames, merges),
        )
        finish, totals = Loop(coordinator, adapters).run()
        _write_summary(run_dir, finish, totals)
    return 0 if finish.status != "failed" else ProtocolError.exit_code


def _tensors(network: Network) -> list[slice]:
    """Where the tensors are in the parameters, each with the padding after it."""
    starts = [tensor.offset for tensor in network.tensors()]
    return [slice(*pair) for pair in pairwise([*starts, network.parameters])]


def _nothing(*_: object) -> None:
    """Evaluations are reported by the coordinator of all servers."""


def _rows(start: ServerStart, config: TrainConfig, weights: Segment | None) -> TrainingRows:
    given = None if weights is None else weights.array("weights")
    rows = start.plan.train_rows
    return TrainingRows(rows, start.features, start.fingerprint, config.seed, given)


def _workers(start: ServerStart) -> tuple[WorkerRequest, ...]:
    requests = parse_workers(start.workers)
    assert requests != "auto", "the process that starts a server knows its processors"
    return check_workers(requests).workers


def _join(frames: FrameSocket, start: ServerStart, requests: tuple[WorkerRequest, ...]) -> Welcome:
    """Join the run as a worker; ProtocolError if it is refused."""
    threads = sum(request.threads for request in requests)
    frames.send(
        encode_message(
            Hello(
                device="server",
                name=f"{socket.gethostname()} ({start.workers})",
                threads=max(1, threads),
                pid=os.getpid(),
                package=version(),
                fingerprint=start.fingerprint,
            )
        )
    )
    match decode_to_worker(frames.wait()):
        case Welcome() as welcome:
            return welcome
        case Refused(reason):
            raise ProtocolError(f"the run has refused this server: {reason}")
        case other:
            raise ProtocolError(f"expected a Welcome; got {type(other).__name__}")


def _write_summary(run_dir: Path, finish: Finish, totals: RunTotals) -> None:
    summary: Mapping[str, Any] = {
        "status": finish.status,
        "reason": finish.reason,
        "train_seconds": totals.seconds,
        "rows": totals.rows,
        "workers": [asdict(worker) for worker in totals.workers],
        "faults": asdict(totals.faults),
    }
    (run_dir / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")


def main() -> None:
    """Run the server that the arguments describe, then exit without waiting for threads."""
    made = argparse.ArgumentParser(prog="hogbatch.distributed.server", allow_abbrev=False)
    made.add_argument("--socket", type=int, required=True)
    made.add_argument("--relay", type=int, required=True)
    made.add_argument("--data", type=int, required=True)
    made.add_argument("--weights", type=int)
    made.add_argument("--run-dir", type=Path, required=True)
    made.add_argument("--launched", type=int, required=True)
    given = made.parse_args()
    die_with(given.launched)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    frames = FrameSocket.inherited(given.socket)
    try:
        start = decode_start(frames.wait())
        weights = None
        if given.weights is not None and start.weights is not None:
            weights = Segment.attach(given.weights, start.weights, writable=False)
        data = Segment.attach(given.data, start.data, writable=False)
        inherited = Inherited(frames, FrameSocket.inherited(given.relay), data, weights)
        code = serve(inherited, start, given.run_dir)
    except BaseException as error:
        code = _explain(error, frames)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _explain(error: BaseException, frames: FrameSocket) -> int:
    """Print the error, and tell the coordinator of all servers; return the exit code."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, HogbatchError):
        text = str(error)
        print(f"hogbatch server: {printable_lines(text)}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    with suppress(OSError):
        frames.send(encode_message(Failed(text[:1000])))
    return error.exit_code if isinstance(error, HogbatchError) else UsageError.exit_code - 1


if __name__ == "__main__":
    main()
