"""`hogbatch profile`: measures this machine and writes its description."""

import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from hogbatch.cli.parser import Parser
from hogbatch.errors import UsageError
from hogbatch.machine.files import replace_file
from hogbatch.machine.printable import printable

if TYPE_CHECKING:
    from hogbatch.simulate.hardware.description import ServerGpu
    from hogbatch.simulate.profile.fit import Probe


def profile(arguments: Sequence[str]) -> int:
    """Measure this machine and write its description, for rehearsals."""
    parser = Parser(profile, "[options]")
    parser.add_argument(
        "--output", metavar="FILE", help="TOML file to write (default: standard output)"
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        default="this-machine",
        help="name of the server (default: %(default)s)",
    )
    options = parser.read(arguments)
    for library in ("OPENBLAS", "OMP", "MKL"):  # as in workers; effective before NumPy is imported
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if options.output is not None:
        _check_output(options.output)
    text = _description(options.name)
    if options.output is None:
        print(text, end="")
        return 0
    try:
        replace_file(Path(options.output), [text.encode()])
    except OSError as error:
        raise UsageError(f"--output {printable(options.output)}: {error.strerror}") from None
    _note(f"wrote {printable(options.output)}")
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


def _description(name: str) -> str:
    """Measure this machine; return its description, called `name`, as TOML."""
    from hogbatch.kernels.gpu.probe import find_gpus
    from hogbatch.simulate.hardware.description import Server, to_toml
    from hogbatch.simulate.profile import machine

    source = f"measured by hogbatch profile, {time.strftime('%Y-%m-%d')}"
    cpu, probes = machine.describe_cpu(source, _note)
    _print_errors("CPU", cpu, probes)
    described: list[ServerGpu] = []
    ordinals: list[int | str] = ["host", *(found.ordinal for found in find_gpus().devices)]
    for ordinal in ordinals:
        gpu, probes = machine.describe_gpu(ordinal, source, _note)
        _print_errors(f"gpu:{ordinal}", gpu, probes)
        described.append(gpu)
    about = f"{cpu.model}, {cpu.threads} threads; {source}"
    return to_toml(Server(name, about, cpu, tuple(described)))


def _print_errors(name: str, described: object, probes: Sequence["Probe"]) -> None:
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
