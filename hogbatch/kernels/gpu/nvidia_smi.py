"""Driver and clocks of a GPU, as reported by nvidia-smi."""

import subprocess

TIMEOUT = 10.0  # seconds; without persistence mode the driver is initialized first
FIELDS = {  # our key: the property of nvidia-smi --query-gpu
    "driver": "driver_version",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "max_memory_mhz": "clocks.max.mem",
}


def query_gpu(pci_bus_id: str) -> dict[str, str]:
    """Return the FIELDS of the GPU at `pci_bus_id` that are known; none if nvidia-smi fails."""
    command = [
        "nvidia-smi",
        f"--id={pci_bus_id}",
        f"--query-gpu={','.join(FIELDS.values())}",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, errors="replace", check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.stdout.strip().split(",")]
    if len(values) != len(FIELDS):
        return {}
    # "[N/A]", "[Not Supported]" and the like are in brackets.
    return {key: v for key, v in zip(FIELDS, values, strict=True) if v and not v.startswith("[")}
