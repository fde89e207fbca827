"""Driver and clocks of a GPU, and all GPUs of the server, as reported by nvidia-smi."""

import re
import subprocess
from typing import NamedTuple

_FORMAT = "--format=csv,noheader,nounits"
TIMEOUT = 10.0  # seconds; without persistence mode the driver is initialized first
FIELDS = {  # our key: the property of nvidia-smi --query-gpu
    "driver": "driver_version",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "max_memory_mhz": "clocks.max.mem",
}

_DRIVER = re.compile(r"Driver Version: *([\d.]+)")
# "CUDA Version: 13.0", in newer drivers "CUDA UMD Version: 13.3", as in scripts/environment
_CUDA = re.compile(r"CUDA(?: [A-Z]+)? Version: *(\d+\.\d+)")
_LISTED = ("name", "compute_cap", "memory.total")
_MIB = 1 << 20


class DriverGpu(NamedTuple):
    """One GPU, as the driver describes it; empty or 0 where it does not."""

    name: str
    compute_capability: str
    memory: int  # bytes


class NvidiaDriver(NamedTuple):
    """The driver, the version of CUDA that it supports, and its GPUs; "" for unknown versions.

    `problem` is the message of a driver that does not work; empty if it does.
    """

    version: str
    cuda: str
    gpus: tuple[DriverGpu, ...] = ()
    problem: str = ""


def query_driver() -> NvidiaDriver | None:
    """Ask nvidia-smi for the driver and all GPUs; None if there is no nvidia-smi."""
    try:
        answer = _run("nvidia-smi")
    except FileNotFoundError:
        return None
    except (OSError, subprocess.SubprocessError) as error:
        return NvidiaDriver("", "", problem=f"nvidia-smi failed: {error}")
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip().splitlines() or ["no output"]
        return NvidiaDriver("", "", problem=f"nvidia-smi failed: {said[0]}")
    version, cuda = (pattern.search(answer.stdout) for pattern in (_DRIVER, _CUDA))
    return NvidiaDriver(version[1] if version else "", cuda[1] if cuda else "", _list_gpus())


def _list_gpus() -> tuple[DriverGpu, ...]:
    for fields in (_LISTED, ("name",)):  # an old nvidia-smi refuses a query with unknown fields
        try:
            answer = _run("nvidia-smi", f"--query-gpu={','.join(fields)}", _FORMAT)
        except (OSError, subprocess.SubprocessError):
            return ()
        if answer.returncode == 0:
            return tuple(map(_parse_gpu, filter(str.strip, answer.stdout.splitlines())))
    return ()


def _parse_gpu(line: str) -> DriverGpu:
    values = [value.strip() for value in line.split(",")]
    name, capability, memory = (*values, "", "")[:3]
    known = "" if capability.startswith("[") else capability
    return DriverGpu(name, known, _MIB * int(memory) if memory.isdecimal() else 0)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, errors="replace"
    )


def query_gpu(pci_bus_id: str) -> dict[str, str]:
    """Return the FIELDS of the GPU at `pci_bus_id` that are known; none if nvidia-smi fails."""
    command = [
        *("nvidia-smi", f"--id={pci_bus_id}", f"--query-gpu={','.join(FIELDS.values())}"),
        _FORMAT,
    ]
    try:
        answer = _run(*command)
        answer.check_returncode()
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.stdout.strip().split(",")]
    if len(values) != len(FIELDS):
        return {}
    # "[N/A]", "[Not Supported]" and the like are in brackets.
    return {key: v for key, v in zip(FIELDS, values, strict=True) if v and not v.startswith("[")}
