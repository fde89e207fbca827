"""The servers of a run, as the process that trains sees them: on this machine, or on a Ray cluster.

A :class:`Cluster` starts servers, and a :class:`ServerHandle` is the way to one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.host import ModelArrays

# (key of the server, why it has failed or ended): called on any thread
ServerFailed = Callable[[str, str], None]


class ServerArrays(NamedTuple):
    """The arrays that every server needs."""

    data: NDArray[np.uint8]  # the contents of the segment "data": the rows, or DividedFiles
    weights: NDArray[np.float64] | None  # [N], of the rows


class ServerHandle(Protocol):
    """One server that was started. Methods that read or write a model wait; the others do not."""

    key: str
    name: str  # of its machine, for messages

    def introduce(
        self, number: int, version: int, peers: "Mapping[int, ServerHandle]", message: bytes
    ) -> None:
        """It is `number` among the servers of merges; `peers` are the others by number.

        After that, it receives `message`, an encoded `Servers`.
        """

    def read_model(self) -> ModelArrays:
        """Its last merged model and its optimizer slots. OSError if it is lost."""

    def read_mean(self) -> NDArray[np.float32]:
        """The moving mean, once it is shown. OSError if the server is lost."""

    def write_model(self, arrays: ModelArrays) -> None:
        """Overwrite its model. OSError if it is lost."""

    def stop(self) -> dict[str, bytes]:
        """Wait for its end; return the contents of its files. OSError if it is lost."""

    def kill(self) -> None:
        """End it now."""


class Cluster(Protocol):
    """Starts servers."""

    size: int  # number of servers
    relay: str  # what moves models without NIXL, for display
    listen: str | None  # where servers reach this process: tcp://IP:*; None: on this machine

    @property
    def line(self) -> str:
        """What the servers are, in one line."""

    def workers(self, place: int) -> str:
        """The workers of the server at `place`, as in `--workers`."""

    def survey(self, requests: Sequence[bytes]) -> list[bytes]:
        """Answer requests on the machines of the servers: request i on that of server i.

        See `hogbatch.cluster.surveys.answer`, and its errors; UsageError if a machine is lost.
        """

    def begin(self, arrays: ServerArrays, failed: ServerFailed) -> None:
        """Make the arrays available to all servers; called once, before `start`.

        `failed` is to be called when a server has failed or ended.
        """

    def start(self, place: int, key: str, start: bytes) -> ServerHandle:
        """Start the server at `place`, 0 to size - 1, under a new `key`.

        It may have to wait until a machine is free.
        """

    def close(self) -> None:
        """Release everything."""
