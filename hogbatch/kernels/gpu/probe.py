"""Detection of usable GPUs, and the reason if there are none.

Initializing CUDA in a process has lasting effects (a context, no fork afterwards), and a broken
driver may crash it. So GPUs are probed in a short-lived process:

    python -m hogbatch.kernels.gpu.probe

prints one line {"devices": [{"ordinal": 0, "name": "...", "memory": bytes}], "reason": "..."};
`reason` is null when there are devices. With the argument PIN, memory is pinned for each of them,
and `pinning_error` says why that failed. `find_gpus` runs it and reads the line.
"""

import importlib.util
import mmap
import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import msgspec

PIN = "--pin"
PINNED_BYTES = 1 << 20
PORTABLE_AND_MAPPED = 3  # flags of cudaHostRegister, as for shared memory
NOT_INSTALLED = "CuPy is not installed; install hogbatch[cuda12] or hogbatch[cuda13]"
_CUPY_PACKAGE = re.compile(r"cupy(-cuda.*|-rocm.*)?")


class Gpu(msgspec.Struct, frozen=True):
    """One usable GPU."""

    ordinal: int
    name: str
    memory: int  # bytes
    pinning_error: str | None = None  # why memory of the host cannot be pinned for it, if known


class ProbeResult(msgspec.Struct, frozen=True):
    """The usable GPUs, or a sentence with the reason why there are none."""

    devices: tuple[Gpu, ...] = ()
    reason: str | None = None


def find_gpus(timeout: float = 120.0, *, pin: bool = False) -> ProbeResult:
    """Probe in a separate process. Never raises: failures there become the reason.

    `timeout` is in seconds; the first initialization of CUDA on a machine can take many. Without
    CuPy no process is started. `pin`: memory is pinned for each GPU.
    """
    if importlib.util.find_spec("cupy") is None:
        return ProbeResult(reason=NOT_INSTALLED)
    # -P: without modules of the working directory
    command = [sys.executable, "-P", "-m", "hogbatch.kernels.gpu.probe", *([PIN] if pin else [])]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=timeout, check=True)
        return msgspec.json.decode(answer.stdout, type=ProbeResult)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        return ProbeResult(reason=f"the GPU probe failed: {error}")


def probe(*, pin: bool = False) -> ProbeResult:
    """Probe in this process; `pin` as for `find_gpus`."""
    packages = installed_cupy_packages()
    if len(packages) > 1:
        return ProbeResult(
            reason=f"{' and '.join(packages)} are installed and overwrite each other; "
            "uninstall them, then install one"
        )
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        if not packages:
            return ProbeResult(reason=NOT_INSTALLED)
        return ProbeResult(reason=f"CuPy is installed but cannot be imported: {first_line(error)}")
    return _probe_with(cupy, pin)


def installed_cupy_packages() -> list[str]:
    """Names of the installed packages that provide `import cupy`."""
    names = {str(found.metadata["Name"]).lower() for found in metadata.distributions()}
    return sorted(name for name in names if _CUPY_PACKAGE.fullmatch(name))


def _probe_with(cupy: Any, pin: bool) -> ProbeResult:
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as error:  # base class of CuPy's CUDARuntimeError
        if runtime.driverGetVersion() == 0:
            return ProbeResult(reason="CuPy is installed, but there is no NVIDIA driver")
        return ProbeResult(reason=f"the NVIDIA driver reports an error: {first_line(error)}")
    if count == 0:
        return ProbeResult(
            reason="there is an NVIDIA driver, but no GPU is visible to this process"
        )
    try:
        _use_libraries(cupy)
    # The exception for a missing library depends on library and version: ImportError, RuntimeError
    except Exception as error:
        return ProbeResult(
            reason="there is a GPU, but CuPy cannot use it; check that the CUDA libraries are "
            f"installed (hogbatch[cuda12] or hogbatch[cuda13]): {first_line(error)}"
        )
    return ProbeResult(tuple(_describe(runtime, ordinal, pin) for ordinal in range(count)))


def _use_libraries(cupy: Any) -> None:
    """Compile a kernel and multiply matrices, which needs NVRTC and cuBLAS."""
    empty_kernel = cupy.RawKernel('extern "C" __global__ void empty_kernel() {}', "empty_kernel")
    empty_kernel((1,), (1,), ())
    square = cupy.ones((2, 2), "float32")
    cupy.matmul(square, square)
    cupy.cuda.get_current_stream().synchronize()


def _describe(runtime: Any, ordinal: int, pin: bool) -> Gpu:
    properties = runtime.getDeviceProperties(ordinal)
    name, error = properties["name"], _pinning_error(runtime, ordinal) if pin else None
    name = name.decode() if isinstance(name, bytes) else name
    return Gpu(ordinal, name, properties["totalGlobalMem"], error)


def _pinning_error(runtime: Any, ordinal: int) -> str | None:
    """Pin some memory that is mapped as shared memory is; return why that fails, if it does."""
    import numpy as np  # here: the parent process does not need it

    try:
        runtime.setDevice(ordinal)
        memory = np.frombuffer(mmap.mmap(-1, PINNED_BYTES), np.uint8)
        runtime.hostRegister(memory.ctypes.data, memory.nbytes, PORTABLE_AND_MAPPED)
        runtime.hostUnregister(memory.ctypes.data)
    except Exception as error:  # whatever the driver raises is the finding
        return first_line(error)
    return None


def first_line(error: BaseException) -> str:
    """The first line of the exception's message, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    print(msgspec.json.encode(probe(pin=PIN in sys.argv[1:])).decode())
