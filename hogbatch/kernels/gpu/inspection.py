"""Properties of the usable GPUs that a report about problems needs, besides those of `probe`.

As there, CUDA is only initialized in a short-lived process:

    python -m hogbatch.kernels.gpu.inspection

prints a `ProbeResult` as one line of JSON. `inspect_gpus` runs it and reads the line.
"""

import importlib.util
import mmap
import sys
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from hogbatch.kernels.gpu.probe import FAILURES, ProbeResult, answer_of, first_line, probe

PINNED_BYTES = 1 << 20
PORTABLE_AND_MAPPED = 3  # flags of cudaHostRegister, as for shared memory


def inspect_gpus(timeout: float) -> ProbeResult | None:
    """Inspect in a separate process, for up to `timeout` seconds; None without CuPy.

    Never raises: failures there become the reason.
    """
    if importlib.util.find_spec("cupy") is None:
        return None
    try:
        return answer_of("hogbatch.kernels.gpu.inspection", ProbeResult, timeout)
    except FAILURES as error:
        return ProbeResult(reason=f"the inspection of GPUs failed: {error}")


def inspect() -> ProbeResult:
    """Inspect in this process."""
    result = probe()
    devices = tuple(
        replace(gpu, pinning_error=_pinning_error(sys.modules["cupy"].cuda.runtime, gpu.ordinal))
        for gpu in result.devices
    )
    return ProbeResult(devices, result.reason)


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
