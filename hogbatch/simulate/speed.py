"""How fast a simulated worker is."""

import re
from dataclasses import dataclass
from typing import Literal

from hogbatch.errors import UsageError

FORM = "cpu:16x2000rows/s,gpu:1x200000rows/s@half=256"
GPU_HALF = 256.0  # rows
TRIED = [2**power for power in range(4, 17)]  # rows of the batches that a GPU worker measures
EVALUATION = 3.0  # times as fast as training: only forward
MAX_WORKERS = 16_384


@dataclass(frozen=True, slots=True)
class Speed:
    """`peak` rows a second, where batches are large; a batch of b rows takes (b + half) / peak
    seconds, so that one of `half` rows has half of the peak.
    """

    device: Literal["cpu", "gpu"]
    peak: float
    half: float = 0.0
    startup: float = 1.0  # seconds from Welcome to Ready
    spread: float = 0.05  # standard deviation of a lease's time, as a share of it
    memory: int | None = None  # rows of the largest batch that fits; None: any

    def seconds(self, rows: int, batch_size: int) -> float:
        """Time to train on `rows` rows in batches of `batch_size`."""
        return (rows + -(-rows // batch_size) * self.half) / self.peak

    def profile(self) -> tuple[tuple[int, float], ...]:
        """What a GPU worker says in Ready: rows of a batch, and seconds that it takes."""
        if self.device == "cpu":
            return ()
        return tuple((rows, self.seconds(rows, rows)) for rows in TRIED)


def parse_workers(text: str) -> list[tuple[int, Speed]]:
    """Read "cpu:16x2000rows/s,gpu:1x200000rows/s@half=256": numbers of workers, and speeds."""
    crew = [_parse(part.strip()) for part in text.split(",")]
    if sum(count for count, _ in crew) > MAX_WORKERS:
        raise UsageError(f"workers: a run has {MAX_WORKERS} at most; got {text!r}")
    return crew


def _parse(part: str) -> tuple[int, Speed]:
    number = r"\d+(?:\.\d*)?(?:e\d+)?"
    found = re.fullmatch(rf"(cpu|gpu):(\d+)x({number})rows/s(?:@half=({number}))?", part)
    if found is None or int(found[2]) < 1 or not 0 < float(found[3]) < 1e12:
        raise UsageError(f"workers: expected a list as in {FORM!r}; got {part!r}")
    device: Literal["cpu", "gpu"] = "gpu" if found[1] == "gpu" else "cpu"
    usual = GPU_HALF if device == "gpu" else 0.0
    half = usual if found[4] is None else float(found[4])
    return int(found[2]), Speed(device, float(found[3]), half)
