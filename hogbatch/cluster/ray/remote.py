"""A Ray cluster as the process that trains sees it, which does not use Ray itself.

Ray ends any process that uses it, without an exception, when the Ray processes of its machine have
ended. The process that trains must outlive them and save the model, so it starts another process,
:mod:`hogbatch.cluster.ray.process`, that makes all calls of Ray.
"""

import itertools
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.host import ModelArrays, ServerFailed
from hogbatch.cluster.ray import calls
from hogbatch.cluster.ray.calls import Message
from hogbatch.errors import HogbatchError, NoWorkers
from hogbatch.machine.process import module_command, start_process
from hogbatch.store.segment import Segment

CLOSED_WITHIN_S: Final = 10.0
MODULE: Final = "hogbatch.cluster.ray.process"


class RayProcess:
    """The process that calls Ray. Its methods may be called from any thread."""

    def __init__(self, failed: ServerFailed, ended: Callable[[str], None]) -> None:
        """Start it; `failed` and `ended` are called on another thread.

        `failed` gets what it reports about a server, and `ended` why it has ended by itself.
        """
        self.lost: str | None = None  # why it cannot be called any more
        self._failed, self._ended = failed, ended
        self._answers: dict[int, queue.SimpleQueue[Any]] = {}
        self._numbers = itertools.count(1)
        self.connected, self._closing = False, False
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._frames, theirs = FrameSocket.pair()
        with theirs:
            command = module_command(MODULE, "--socket", str(theirs.fileno()))
            # Ctrl-C, which does not reach it, ends the run, which still needs this process.
            self._process = start_process(command, self._output, pass_fds=[theirs.fileno()])
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def tell(self, message: Message, segment: Segment | None = None) -> None:
        """Send a call that has no answer; OSError if the process has ended."""
        try:
            calls.send(self._frames, message, segment)
        except OSError as error:
            self._thread.join(CLOSED_WITHIN_S)  # it sets `lost` when the process has ended
            raise OSError(self.lost or f"Ray cannot be called: {error.strerror}") from None

    def call(
        self, message: Message, segment: Segment | None = None, timeout_s: float | None = None
    ) -> Any:
        """Call a method and return its result; OSError if the process has ended."""
        number = next(self._numbers)
        answer = self._answers[number] = queue.SimpleQueue()
        try:
            self.tell(structs.replace(message, number=number), segment)
            result = answer.get(timeout=timeout_s)
        except queue.Empty:
            raise OSError(f"Ray has not answered within {timeout_s} s") from None
        finally:
            del self._answers[number]
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self._closing = True
        with suppress(OSError, HogbatchError):
            self.call(Message("close"), timeout_s=CLOSED_WITHIN_S)
        self._process.kill()
        self._thread.join()

    def _receive(self) -> None:
        while received := calls.receive(self._frames):
            message, segment = received
            if message.method == calls.FAILED:
                self._failed(*message.arguments)
            elif answer := self._answers.get(message.number):
                answer.put(_result(message, segment))
        code = self._process.wait()
        with self._output as output:
            output.seek(0)
            printed = output.read().decode(errors="replace").splitlines()
        reason = f"Ray has ended its process with exit code {code}"
        if printed and not self.connected:  # later ones are messages of the machines of the cluster
            reason += f": {printed[-1]}"
        self.lost = f"the connection to the Ray cluster was lost ({reason})"
        for answer in list(self._answers.values()):
            answer.put(OSError(self.lost))
        self._frames.close()
        if not self._closing:
            self._ended(self.lost)


class RemoteServer:
    """A server on a machine of the cluster, like `LocalServer`. OSError if it is lost."""

    def __init__(self, process: RayProcess, key: str) -> None:
        self.key, self._process = key, process

    def introduce(
        self, number: int, version: int, peers: Mapping[int, Any], message: bytes
    ) -> None:
        keys = {each: peer.key for each, peer in peers.items()}
        with suppress(OSError):  # reported as the end of the process
            self._process.tell(self._method("introduce", number, version, keys, message))

    def read_model(self) -> ModelArrays:
        model: ModelArrays = self._call("read_model")
        return model

    def read_mean(self) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = self._call("read_mean")
        return mean

    def read_scores(self, start: int, stop: int) -> NDArray[Any]:
        scores: NDArray[Any] = self._call("read_scores", start, stop)
        return scores

    def write_model(self, arrays: ModelArrays) -> None:
        with closing(calls.packed(arrays)) as segment:
            self._call("write_model", segment=segment)

    def _call(self, method: str, *arguments: Any, segment: Segment | None = None) -> Any:
        """Call a method of the ServerHost."""
        return self._process.call(self._method("call", method, *arguments), segment)

    def stop(self) -> dict[str, bytes]:
        files: dict[str, NDArray[np.uint8]] = self._process.call(self._method("stop"))
        return {name: content.tobytes() for name, content in files.items()}

    def kill(self) -> None:
        self._process.tell(self._method("kill"))

    def _method(self, name: str, *arguments: Any) -> Message:
        return Message(name, arguments, self.key)


class RemoteCluster:
    """The servers of a run on a Ray cluster, like `LocalCluster`."""

    relay = "the object store of Ray"

    def __init__(self, address: str, size: int, per_server: str) -> None:
        """UsageError if there is no such cluster, or if it has too few machines."""
        self.size = size
        self._keys: list[str] = []  # of all servers
        self._report: ServerFailed | None = None
        self._process = RayProcess(self._failed, self._ended)
        try:
            opened = self._call("open", _in_use() or address, size, per_server)
        except BaseException:
            self._process.close()
            raise
        self._process.connected = True
        self.lines: list[str] = opened[0]
        self.listen: str | None = opened[1]
        self._workers: str = opened[2]

    @property
    def lost(self) -> str | None:
        return self._process.lost

    def workers(self, index: int) -> str:
        return self._workers

    def survey(self, requests: Sequence[bytes]) -> list[bytes]:
        surveys = self._call("survey", *requests)
        return [each.tobytes() for each in surveys.values()]

    def begin(self, data: Segment, failed: ServerFailed) -> None:
        self._report = failed
        self._call("begin", segment=data)

    def start(self, index: int, key: str, start: bytes) -> RemoteServer:
        self._keys.append(key)
        self._process.tell(Message("start", (index, key, start)))
        return RemoteServer(self._process, key)

    def close(self) -> None:
        self._process.close()

    def _call(self, method: str, *arguments: Any, segment: Segment | None = None) -> Any:
        """Call a method of the cluster; NoWorkers if Ray is lost."""
        try:
            return self._process.call(Message(method, arguments), segment)
        except OSError as error:
            raise NoWorkers(str(error)) from None

    def _failed(self, key: str, reason: str) -> None:
        assert self._report is not None, "begin comes first"
        self._report(key, reason)

    def _ended(self, reason: str) -> None:
        for key in list(self._keys):
            self._failed(key, reason)


def _result(message: Message, segment: Segment | None) -> Any:
    """The result of a call, or its exception."""
    if message.method == calls.ERROR:
        return calls.restored(*message.arguments)
    if segment is None:
        return message.arguments[0]
    arrays = calls.unpacked(segment)
    return arrays.get(calls.ALONE, arrays)


def _in_use() -> str | None:
    """The address of the Ray cluster that this process uses already, if it does."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    address: str = ray.get_runtime_context().gcs_address
    return address
