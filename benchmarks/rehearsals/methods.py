"""The methods of the matrix: which processors of a server train, with which batches."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.common.servers import Processors

CPU_BATCHES: Final = (64, 16, 256)
GPU_BATCHES: Final = (512, 1024, 256, 2048)
TOGETHER: Final = ("hogbatch", "adaptive")
KINDS: Final = ("gpu", "cpu", *TOGETHER)


@dataclass(frozen=True, slots=True)
class Method:
    """One way to train: its name, and its flags of `hogbatch rehearse`."""

    name: str
    kind: str  # one of KINDS
    flags: tuple[str, ...]

    @property
    def alone(self) -> bool:
        """Whether only one kind of device trains."""
        return self.kind not in TOGETHER


def methods(
    processors: Processors,
    kinds: Collection[str] = KINDS,
    cpu_batches: Collection[int] = CPU_BATCHES,
    gpu_batches: Collection[int] = GPU_BATCHES,
) -> Iterator[Method]:
    """The methods on a server, those of devices alone first.

    Of several GPUs, the first one is trained alone. On a server without a GPU there is no method
    "cpu", because `adaptive` is the CPU alone with its default policy.
    """
    if "gpu" in kinds and processors.gpus:
        yield from _fixed("gpu", f"gpu:{processors.gpus[0]}", gpu_batches)
    if "cpu" in kinds:
        cpu = f"cpu:{processors.threads}"
        if processors.gpus:
            yield Method("cpu", "cpu", ("--workers", cpu))
        yield from _fixed("cpu", cpu, cpu_batches)
    yield from (Method(kind, kind, ("--policy", kind)) for kind in TOGETHER if kind in kinds)


def _fixed(kind: str, workers: str, batches: Collection[int]) -> Iterator[Method]:
    """One kind of device with fixed batch sizes."""
    for rows in batches:
        limits = (f"--{kind}-batch", f"{rows}:{rows}")
        yield Method(f"{kind}-{rows}", kind, ("--workers", workers, "--policy", "fixed", *limits))
