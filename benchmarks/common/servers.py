"""The servers on which rehearsals take place: their names, and which processors they have."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hogbatch.simulate.hardware.description import read_server


@dataclass(frozen=True, slots=True)
class Processors:
    """The processors of a server as values of --workers."""

    threads: int  # of the CPU
    cores: int  # of the CPU; several threads may share one
    gpus: tuple[str, ...] = ()  # "0", "1", ...; not "host", which is never used by default
    members: int = 1  # CPU threads that compute a batch together by default; depends on the network

    @classmethod
    def of(cls, server: str) -> "Processors":
        """Those of a bundled server, or of a file; UsageError if there is no such server."""
        found = read_server(server)
        gpus = (f"{gpu.ordinal}" for gpu in found.gpus if gpu.ordinal != "host")
        return cls(found.cpu.threads, found.cpu.cores, tuple(gpus))


def short_name(server: str) -> str:
    """The name of a server in file names and tables."""
    return Path(server).stem if server.endswith(".toml") else server


def digest(server: str) -> str:
    """A key of the description: a changed description makes earlier results invalid.

    It covers the figures that the description takes from another one.
    """
    return sha256(repr(read_server(server)).encode()).hexdigest()[:12]
