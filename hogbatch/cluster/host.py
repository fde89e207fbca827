"""Starts the process of a server on this machine, and connects it with the rest of the run.

A :class:`ServerHost` is part of the process that trains (servers on this machine), or of an actor
of Ray. It reports the end of the server's process, tells it who the other servers are, and maps its
memory, so that models can be read and written without its help. All other messages go directly
between the process and the coordinator of all servers.
"""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.msgpack import decode, encode
from numpy.typing import NDArray

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.planes.relayed import Note, RelayedWrite, Written
from hogbatch.cluster.server_figures import FIGURES_FILE
from hogbatch.cluster.start import ServerMemory, ServerStart
from hogbatch.errors import HogbatchError
from hogbatch.events.names import EVENTS, SUMMARY
from hogbatch.kernels.contract import NO_SCORES
from hogbatch.machine.process import exit_in_words, last_lines, module_command, start_process
from hogbatch.machine.temporary import TemporaryDirectory
from hogbatch.store.model import SharedModel
from hogbatch.store.row_scores import row_scores
from hogbatch.store.segment import Segment
from hogbatch.wire.codec import MAGIC, decode_to_coordinator
from hogbatch.wire.messages import Failed

SHOWN_WITHIN_S: Final = 10.0  # after it was asked for
POLL_S: Final = 0.002
ENDS_WITHIN_S: Final = 6.0  # after it was told to stop
LOG: Final = "server.log"
MODEL_ARRAYS: Final = ("params", "first", "second")

# (key of the server, why it has failed or ended): called on any thread
ServerFailed = Callable[[str, str], None]
ModelArrays = dict[str, NDArray[np.float32]]
# (sender, version, target offset, bytes, note): writes to another server; returns why that failed.
WriteTo = Callable[[int, int, int, NDArray[np.uint8], bytes], str | None]


class ServerHost:
    """One server. Its methods may be called from any thread."""

    def __init__(
        self, start: bytes, data: NDArray[np.uint8], failed: Callable[[str], None]
    ) -> None:
        """Start the process; `start` is an encoded ServerStart, `data` its segment's contents.

        `failed` is called on another thread, with the reason, if the process fails or ends.
        """
        self._failed = failed
        self._frames, theirs = FrameSocket.pair()
        self._relay, their_relay = FrameSocket.pair()
        self._folder = TemporaryDirectory()
        self._run_dir = self._folder.path
        self._peers: dict[int, WriteTo] = {}
        self._number, self._version = -1, 0
        self._membership = threading.Lock()  # held while others write to the buffers
        self._mapped = threading.Event()
        self._model: SharedModel | None = None
        self._scores = NO_SCORES
        self._buffers: ExchangeBuffers | None = None
        self._stopping = False
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        layout = decode(start, type=ServerStart).data
        self._data = Segment.create("data", layout, read_only=True)  # inherited by the process
        self._data.memory[:] = data
        self._thread = threading.Thread(
            target=self._run, args=(theirs, their_relay, start, started), daemon=True
        )
        self._thread.start()
        if error := started.get():
            self._folder.close()
            raise error
        threading.Thread(target=self._serve_relay, daemon=True).start()

    # Messages -------------------------------------------------------------------------------

    def connect(
        self, number: int, version: int, writes: Mapping[int, WriteTo], message: bytes
    ) -> None:
        """The server is `number` among those of a merge; `writes` are those to the others.

        Servers of earlier versions can no longer write to this one. The server's process gets
        `message` after that; one that has ended gets nothing.
        """
        with self._membership:
            self._number, self._version, self._peers = number, version, dict(writes)
        with suppress(OSError):
            self._frames.send(message)

    # Memory ---------------------------------------------------------------------------------

    def read_model(self) -> ModelArrays:
        """Copy the last merged model and the optimizer slots."""
        model, buffers = self._memory()
        return {
            "params": buffers.merged.copy(),
            "first": model.first.copy(),
            "second": model.second.copy(),
        }

    def read_mean(self) -> NDArray[np.float32]:
        """Copy the moving mean, once the server shows it; HogbatchError if it does not in time."""
        model, buffers = self._memory()
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while not buffers.mean_is_shown[0]:
            if time.monotonic() > deadline or self._stopping:
                raise HogbatchError(f"no moving mean was shown within {SHOWN_WITHIN_S:.0f} s")
            time.sleep(POLL_S)
        return model.params.copy()

    def read_scores(self, start: int, stop: int) -> NDArray[Any]:
        """Copy the scores of rows [start, stop), which the server has evaluated."""
        self._memory()
        return self._scores.stored[start:stop].copy()

    def write_model(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Overwrite the model; the server trains on it after a Load."""
        model, _ = self._memory()
        for name in MODEL_ARRAYS:
            getattr(model, name)[:] = arrays[name]

    def write(
        self, sender: int, version: int, target: int, array: NDArray[np.uint8], note: bytes
    ) -> str | None:
        """Write what another server sends to the buffers, then pass on the note.

        Returns why it was not done, if so: the server has ended, or the write belongs to another
        membership than this server's.
        """
        try:
            _, buffers = self._memory()
            with self._membership:
                if version != self._version:
                    return f"is connected with other servers ({version}, expected {self._version})"
                buffers.memory[target : target + len(array)] = array
                self._relay.send(encode(Note(sender, note)))
        except (HogbatchError, OSError) as error:
            return f"cannot be reached: {error}"
        return None

    def _memory(self) -> tuple[SharedModel, ExchangeBuffers]:
        if not self._mapped.wait(ENDS_WITHIN_S) or self._model is None or self._buffers is None:
            raise HogbatchError("the process of a server has no memory yet, or has ended")
        return self._model, self._buffers

    # End ------------------------------------------------------------------------------------

    def stop(self) -> dict[str, bytes]:
        """Wait for the end of the process, kill it if necessary; return the files of its run."""
        self._stopping = True
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._thread.join()
        logs = (path.name for path in self._run_dir.glob("worker-*.log"))
        files = {}
        for name in (SUMMARY, EVENTS, LOG, FIGURES_FILE, *logs):
            with suppress(OSError):
                files[name] = (self._run_dir / name).read_bytes()
        self.kill()
        return files

    def kill(self) -> None:
        """End the process now, and remove its files."""
        self._stopping = True
        self._process.kill()
        self._thread.join()
        self._folder.close()

    # Threads --------------------------------------------------------------------------------

    def _run(
        self,
        theirs: Any,
        their_relay: Any,
        start: bytes,
        started: "queue.SimpleQueue[BaseException | None]",
    ) -> None:
        """Start the process, receive its messages, and wait for its end.

        The kernel kills the process when this thread ends.
        """
        try:
            fds = [theirs.fileno(), their_relay.fileno(), self._data.fd]
            options = ["--inherited", ",".join(map(str, fds)), "--run-dir", str(self._run_dir)]
            command = module_command("hogbatch.cluster.server", *options)
            with (self._run_dir / LOG).open("ab") as log:
                self._process = start_process(command, log, pass_fds=fds)
            self._frames.send(start)
        except BaseException as error:
            started.put(error)
            return
        finally:
            for each in (theirs, their_relay, self._data):
                each.close()
        started.put(None)
        while frame := self._frames.wait():
            self._received(frame)
        why = f"the process of the server {exit_in_words(self._process.wait())}"
        if not self._stopping:
            self._failed("\n".join([why, *last_lines(self._run_dir / LOG)]))

    def _received(self, frame: bytes) -> None:
        if frame.startswith(MAGIC):
            failed = decode_to_coordinator(frame)
            assert isinstance(failed, Failed), "other messages go to the coordinator"
            self._failed(failed.reason)
            return
        try:
            self._map(decode(frame, type=ServerMemory))
        except (msgspec.DecodeError, OSError) as error:
            self._failed(f"its memory cannot be mapped: {error}")
        self._mapped.set()

    def _map(self, memory: ServerMemory) -> None:
        """Map the memory of the process, whose descriptors are visible to the same user."""
        shared, exchange = (
            os.open(f"/proc/{self._process.pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            for fd in (memory.shared, memory.exchange)
        )
        segment = Segment.attach(shared, memory.layout, writable=True)
        self._model, self._scores = SharedModel.of(segment), row_scores(segment)
        self._buffers = ExchangeBuffers.attach(exchange, memory.exchange_layout)

    def _serve_relay(self) -> None:
        """Write to other servers what the process asks for."""
        while frame := self._relay.wait():
            write = decode(frame, type=RelayedWrite)
            _, buffers = self._memory()
            peer = self._peers.get(write.to)
            if peer is None:
                failure: str | None = "is not connected"
            else:
                array = buffers.memory[write.start : write.stop]
                failure = peer(self._number, self._version, write.target, array, write.note)
            with suppress(OSError):
                self._relay.send(encode(Written(failure)))
