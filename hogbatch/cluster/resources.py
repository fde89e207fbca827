"""Processors that `--per-server` requests on each server."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class PerServer:
    """CPU threads and GPUs of each server; None: all that it has."""

    cpus: int | None
    gpu_count: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "cpu:auto,gpu:all" or "cpu:8,gpu:2"; without "gpu" there are none."""
        given = dict(part.split(":") for part in text.split(","))
        cpus, gpus = given["cpu"], given.get("gpu", "0")
        return cls(None if cpus == "auto" else int(cpus), None if gpus == "all" else int(gpus))

    def threads(self, available: int) -> int:
        """Threads on a server with `available` cores; with GPUs, a core is left for each."""
        return max(1, available) if self.cpus is None else self.cpus

    def gpus(self, available: int) -> int:
        """GPUs on a server that has `available` of them."""
        return available if self.gpu_count is None else self.gpu_count

    def __str__(self) -> str:
        cpus = "auto" if self.cpus is None else self.cpus
        return f"cpu:{cpus},gpu:{'all' if self.gpu_count is None else self.gpu_count}"
