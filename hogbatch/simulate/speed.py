"""Speed of simulated workers."""

import re
from dataclasses import dataclass
from typing import Literal

from hogbatch.config.train import MAX_SERVERS
from hogbatch.errors import UsageError

EXAMPLE = "cpu:16x2000rows/s,gpu:1x200000rows/s@half=256"
GPU_HALF = 256.0  # rows
MEASURED = [2**power for power in range(4, 17)]  # rows of the batches that a GPU worker measures
EVALUATION_SPEEDUP = 3.0  # over training, since there is no backward pass
MAX_WORKERS = 16_384

Device = Literal["cpu", "gpu", "server"]
DEVICES: dict[str, Device] = {"cpu": "cpu", "gpu": "gpu", "server": "server"}


@dataclass(frozen=True, slots=True)
class Speed:
    """`peak` rows per second with large batches. A batch of b rows takes (b + half) / peak seconds,
    so batches of `half` rows reach half of the peak.
    """

    device: Device
    peak: float
    half: float = 0.0
    startup: float = 1.0  # seconds from Welcome to Ready
    spread: float = 0.05  # standard deviation of a lease's time, as a fraction of it
    memory: int | None = None  # rows of the largest batch that fits; None: unlimited

    def seconds(self, rows: int, batch_size: int) -> float:
        """Time to train on `rows` rows in batches of `batch_size`."""
        return (rows + -(-rows // batch_size) * self.half) / self.peak

    def profile(self) -> tuple[tuple[int, float], ...]:
        """The profile that a worker sends in Ready: rows of a batch, and its seconds."""
        if self.device == "cpu":
            return ()
        if self.device == "server":
            return ((1, self.seconds(1, 1)),)
        return tuple((rows, self.seconds(rows, rows)) for rows in MEASURED)


def parse_workers(text: str) -> list[tuple[int, Speed]]:
    """Parse "cpu:16x2000rows/s,gpu:1x200000rows/s@half=256" into numbers of workers and speeds."""
    workers = [_parse(part.strip()) for part in text.split(",")]
    if sum(count for count, _ in workers) > MAX_WORKERS:
        raise UsageError(f"workers: expected at most {MAX_WORKERS}; got {text!r}")
    servers = sum(count for count, speed in workers if speed.device == "server")
    if servers > MAX_SERVERS:
        raise UsageError(f"workers: expected at most {MAX_SERVERS} servers; got {text!r}")
    if len({speed.device == "server" for _, speed in workers}) > 1:
        raise UsageError(
            f"workers: servers have workers of their own; list servers only, got {text!r}"
        )
    return workers


def _parse(part: str) -> tuple[int, Speed]:
    number = r"\d+(?:\.\d*)?(?:e\d+)?"
    match = re.fullmatch(rf"(cpu|gpu|server):(\d+)x({number})rows/s(?:@half=({number}))?", part)
    if match is None or int(match[2]) < 1 or not 0 < float(match[3]) < 1e12:
        raise UsageError(f"workers: expected a list such as {EXAMPLE!r}; got {part!r}")
    device = DEVICES[match[1]]
    usual = GPU_HALF if device == "gpu" else 0.0
    half = usual if match[4] is None else float(match[4])
    return int(match[2]), Speed(device, float(match[3]), half)
