"""The servers of a run, as the process that trains sees them: on this machine, or on a Ray cluster.

A :class:`Cluster` starts servers, and a :class:`ServerHandle` is the way to one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.host import ModelArrays
from hogbatch.store.segment import Segment

# (key of the server, why it has failed or ended): called on any thread
ServerFailed = Callable[[str, str], None]


def requested(per_server: str, cores: int, gpus: int) -> tuple[int, int]:
    """The CPU threads and GPUs that `--per-server` requests of a server that has so many.

    `per_server` is "cpu:auto,gpu:all" or as in "cpu:8,gpu:2"; without "gpu" there are none.
    """
    counts = dict(part.split(":") for part in per_server.split(","))
    cpu, gpu = counts["cpu"], counts.get("gpu", "0")
    return max(1, cores) if cpu == "auto" else int(cpu), gpus if gpu == "all" else int(gpu)


class ServerHandle(Protocol):
    """One server that was started. Methods that read or write wait; the others do not."""

    key: str

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

    def read_scores(self, start: int, stop: int) -> NDArray[Any]:
        """`RowScores.stored` of rows [start, stop), which it has evaluated; OSError if lost."""

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
    listen: str | None  # IP address where servers reach this process; None: on this machine

    @property
    def lines(self) -> Sequence[str]:
        """What is to be printed about the servers."""

    @property
    def lost(self) -> str | None:
        """Why no server can be started any more; None: they can be."""

    def workers(self, index: int) -> str:
        """The workers of server `index`, as in `--workers`."""

    def survey(self, requests: Sequence[bytes]) -> list[bytes]:
        """Answer requests on the machines of the servers: request i on that of server i.

        See `hogbatch.cluster.surveys.answer`, and its errors; UsageError if a machine is lost.
        """

    def begin(self, data: Segment, failed: ServerFailed) -> None:
        """Make `data`, the rows or DividedFiles, available to all servers; once, before `start`.

        `failed` is to be called when a server has failed or ended.
        """

    def start(self, index: int, key: str, start: bytes) -> ServerHandle:
        """Start server `index`, 0 to size - 1, under a new `key`.

        It may have to wait until a machine is free.
        """

    def close(self) -> None:
        """Release everything."""
