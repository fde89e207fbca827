"""Properties of the usable GPUs that a report about problems needs, besides those of `probe`.

As there, CUDA is only initialized in a short-lived process:

    python -m hogbatch.kernels.gpu.inspection

prints a `GpuInspection` as one line of JSON. `inspect_gpus` runs it and reads the line.
"""

import importlib.util
import mmap
import sys
from typing import Any

import msgspec
import numpy as np

from hogbatch.kernels.gpu.probe import FAILURES, answer_of, first_line, probe

PINNED_BYTES = 1 << 20
PORTABLE_AND_MAPPED = 3  # flags of cudaHostRegister, as for shared memory


class InspectedGpu(msgspec.Struct, frozen=True):
    """One usable GPU."""

    ordinal: int
    name: str
    memory: int  # bytes
    pinning_error: str | None = None  # why memory of the host cannot be pinned for it


class GpuInspection(msgspec.Struct, frozen=True):
    """The usable GPUs, or a sentence with the reason why there are none."""

    devices: tuple[InspectedGpu, ...] = ()
    reason: str | None = None


def inspect_gpus(timeout: float) -> GpuInspection | None:
    """Inspect in a separate process, for up to `timeout` seconds; None without CuPy.

    Never raises: failures there become the reason.
    """
    if importlib.util.find_spec("cupy") is None:
        return None
    try:
        return answer_of("hogbatch.kernels.gpu.inspection", GpuInspection, timeout)
    except FAILURES as error:
        return GpuInspection(reason=f"the inspection of GPUs failed: {error}")


def inspect() -> GpuInspection:
    """Inspect in this process."""
    found = probe()
    cupy = sys.modules.get("cupy")
    if cupy is None:  # the probe did not import it, or failed to
        return GpuInspection(reason=found.reason)
    devices = tuple(
        InspectedGpu(
            gpu.ordinal, gpu.name, gpu.memory, _pinning_error(cupy.cuda.runtime, gpu.ordinal)
        )
        for gpu in found.devices
    )
    return GpuInspection(devices, found.reason)


def _pinning_error(runtime: Any, ordinal: int) -> str | None:
    """Return why memory cannot be pinned for a GPU, if it cannot."""
    try:
        runtime.setDevice(ordinal)
        _pin(runtime)
    except Exception as error:  # whatever the driver raises is the finding
        return first_line(error)
    return None


def _pin(runtime: Any) -> None:
    """Pin some memory that is mapped as shared memory is, and unpin it."""
    memory = np.frombuffer(mmap.mmap(-1, PINNED_BYTES), np.uint8)
    runtime.hostRegister(memory.ctypes.data, memory.nbytes, PORTABLE_AND_MAPPED)
    runtime.hostUnregister(memory.ctypes.data)


if __name__ == "__main__":
    print(msgspec.json.encode(inspect()).decode())
