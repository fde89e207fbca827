"""The command `hogbatch profile`."""

import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import find_gpus
from hogbatch.machine.files import replace_file
from hogbatch.machine.printable import printable
from hogbatch.simulate.hardware.description import Server, ServerGpu, to_toml
from hogbatch.simulate.profile.fit import Probe
from hogbatch.simulate.profile.machine import (
    FULL,
    QUICK,
    describe_cpu,
    describe_cuda,
    describe_host,
)


def execute(output: str | None, name: str, *, quick: bool) -> int:
    """Measure this machine; write its description to the file `output`, or to standard output."""
    if output is not None:
        _check_output(output)
    effort = QUICK if quick else FULL
    date = time.strftime("%Y-%m-%d")
    source = f"measured by hogbatch profile{' --quick' if quick else ''}, {date}"
    cpu, probes = describe_cpu(effort, source, _note)
    described: list[ServerGpu] = []
    gpu, measured = describe_host(cpu, effort, source, _note)
    _print_errors("CPU", cpu, probes)
    _print_errors("gpu:host", gpu, measured)
    described.append(gpu)
    for found in find_gpus().devices:
        gpu, measured = describe_cuda(found.ordinal, cpu, effort, source, _note)
        _print_errors(f"gpu:{found.ordinal}", gpu, measured)
        described.append(gpu)
    about = f"{cpu.model}, {cpu.threads} threads; {source}"
    text = to_toml(Server(name, about, cpu, tuple(described)))
    if output is None:
        print(text, end="")
        return 0
    try:
        replace_file(Path(output), [text.encode()])
    except OSError as error:
        raise UsageError(f"--output {printable(output)}: {error.strerror}") from None
    _note(f"wrote {printable(output)}")
    return 0


def _check_output(output: str) -> None:
    """Raise UsageError if the file cannot be written: before the minutes of measuring."""
    path = Path(output)
    folder = path.parent
    if path.is_dir():
        problem = "is a folder; give the name of a file"
    elif not folder.is_dir():
        problem = f"the folder {printable(str(folder))} does not exist"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f"the folder {printable(str(folder))} is not writable"
    else:
        return
    raise UsageError(f"--output {printable(output)}: {problem}")


def _print_errors(name: str, described: object, probes: Sequence[Probe]) -> None:
    """Print how far the predictions are from the measured times."""
    errors = {probe: probe.predict(described) / probe.seconds - 1 for probe in probes}
    worst = max(errors, key=lambda probe: abs(math.log1p(errors[probe])))
    middle = median(abs(error) for error in errors.values())
    _note(
        f"{name}: {len(probes)} probes, median error {100 * middle:.0f} %, largest "
        f"{100 * errors[worst]:+.0f} % ({worst.name})"
    )


def _note(line: str) -> None:
    print(f"hogbatch: {line}", file=sys.stderr, flush=True)
