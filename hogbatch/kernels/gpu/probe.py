"""Which GPUs can be used, and if none, why.

Touching CUDA in a process has effects that last (a context, no fork afterwards), and a broken
driver may crash it. So the question is asked in a throw-away process:

    python -m hogbatch.kernels.gpu.probe

prints one line {"devices": [{"ordinal": 0, "name": "...", "memory": bytes}], "reason": "..."};
`reason` is empty when there are devices. `find_gpus` runs it and reads the line.
"""

import importlib
import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import msgspec

_CUPY = re.compile(r"cupy(-cuda.*|-rocm.*)?")


class Gpu(msgspec.Struct, frozen=True):
    """One usable GPU."""

    ordinal: int
    name: str
    memory: int  # bytes


class Probe(msgspec.Struct, frozen=True):
    """The usable GPUs, or why there are none, in one sentence."""

    devices: tuple[Gpu, ...] = ()
    reason: str = ""


def find_gpus(timeout: float = 120.0) -> Probe:
    """Ask in a process of its own. Never raises: what goes wrong there becomes the reason.

    `timeout` is in seconds; the first start of CUDA on a machine can take many.
    """
    command = [sys.executable, "-m", "hogbatch.kernels.gpu.probe"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=timeout, check=True)
        return msgspec.json.decode(answer.stdout, type=Probe)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as failure:
        return Probe(reason=f"the GPU probe failed: {failure}")


def probe() -> Probe:
    """Ask in this process."""
    wheels = _installed_cupys()
    if len(wheels) > 1:
        return Probe(
            reason=f"{' and '.join(wheels)} are both installed and overwrite each other; "
            "uninstall both, then install one"
        )
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as missing:
        if not wheels:
            return Probe(
                reason="CuPy is not installed; install hogbatch[cuda12] or hogbatch[cuda13]"
            )
        return Probe(reason=f"CuPy is installed but cannot be imported: {_line(missing)}")
    return _probe_with(cupy)


def _installed_cupys() -> list[str]:
    """Names of the installed packages that provide `import cupy`."""
    names = {str(found.metadata["Name"]).lower() for found in metadata.distributions()}
    return sorted(name for name in names if _CUPY.fullmatch(name))


def _probe_with(cupy: Any) -> Probe:
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as refused:  # CuPy's CUDARuntimeError is one
        if runtime.driverGetVersion() == 0:
            return Probe(reason="CuPy is installed, but there is no NVIDIA driver")
        return Probe(reason=f"the NVIDIA driver refuses: {_line(refused)}")
    if count == 0:
        return Probe(reason="there is an NVIDIA driver, but no GPU that this process may see")
    try:
        _use_libraries(cupy)
    # What a missing library raises differs by library and version: ImportError, RuntimeError, ...
    except Exception as failure:
        return Probe(
            reason="there is a GPU, but CuPy cannot use it; are the CUDA libraries installed "
            f"(hogbatch[cuda12] or hogbatch[cuda13] brings them)? {_line(failure)}"
        )
    return Probe(tuple(_describe(runtime, ordinal) for ordinal in range(count)))


def _use_libraries(cupy: Any) -> None:
    """Compile and multiply once: needs NVRTC and cuBLAS."""
    nothing = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    nothing((1,), (1,), ())
    square = cupy.ones((2, 2), "float32")
    cupy.matmul(square, square)
    cupy.cuda.get_current_stream().synchronize()


def _describe(runtime: Any, ordinal: int) -> Gpu:
    properties = runtime.getDeviceProperties(ordinal)
    name = properties["name"]
    return Gpu(
        ordinal, name.decode() if isinstance(name, bytes) else name, properties["totalGlobalMem"]
    )


def _line(error: BaseException) -> str:
    """The first line of what an exception says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    print(msgspec.json.encode(probe()).decode())
