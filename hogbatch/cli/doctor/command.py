"""`hogbatch doctor`: what this machine and this installation offer, and what to improve."""

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hogbatch.cli.doctor import checks
from hogbatch.cli.doctor.checks import REQUIRED, SHMEM, Verdict
from hogbatch.cli.parser import Parser
from hogbatch.errors import UsageError
from hogbatch.jit import VECTOR_VARIABLE, cache_directory, cache_problem
from hogbatch.machine import linux
from hogbatch.machine.cachedir import find_cache_root
from hogbatch.machine.environment import installed
from hogbatch.machine.linux import ROOT
from hogbatch.machine.printable import encodable, plural, printable
from hogbatch.version import version

if TYPE_CHECKING:
    from hogbatch.kernels.gpu.probe import ProbeResult

CUDA_SECONDS: Final = 60.0  # the first initialization of CUDA on a machine can take many
PCI_FOLDER: Final = "sys/bus/pci/devices"
NVIDIA: Final = "0x10de"
DISPLAY: Final = "0x03"  # class of PCI devices: graphics cards, and accelerators without outputs
MODULES: Final = {"pyzmq": "zmq"}  # package: its module, if that has another name
OPTIONAL: Final = (  # packages that nothing checks
    *("scikit-learn", "matplotlib", "tensorboard", "mlflow", "mlflow-skinny", "wandb", "ray"),
    *("scipy", "pandas", "polars", "onnx", "pillow", "cupy", "cupy-cuda12x", "cupy-cuda13x"),
)
MAX_REASON: Final = 200  # characters


def _processor() -> Verdict:
    import llvmlite.binding as llvm  # here: if it is broken, only this is unknown

    from hogbatch.kernels.cpu.simd import vector_width

    features, forced = llvm.get_host_cpu_features(), os.environ.get(VECTOR_VARIABLE, "")
    width = int(vector_width("", features))
    return checks.processor(linux.processor_name(), features, width, forced, platform.machine())


def _huge_pages() -> Verdict:
    from hogbatch.store.layout import HUGE_PAGE  # here: these modules need NumPy
    from hogbatch.store.pages import collapse, map_shared

    fd = os.memfd_create("hogbatch-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, HUGE_PAGE)
        moved = collapse(map_shared(fd, HUGE_PAGE, writable=True))
    finally:
        os.close(fd)
    return checks.huge_pages(moved, "" if moved else Path(SHMEM).read_text())


@cache
def inspected_gpus() -> "ProbeResult":
    """The usable GPUs; CuPy is tried in a process of its own."""
    from hogbatch.kernels.gpu.probe import find_gpus  # here: it needs msgspec

    return find_gpus(CUDA_SECONDS, pin=True)


CHECKS: Final[dict[str, Callable[[], Verdict]]] = {
    "processor": _processor,
    "cores": lambda: checks.cores(
        linux.read_topology(), os.cpu_count() or 1, len(inspected_gpus().devices)
    ),
    "CPU quota": lambda: checks.quota(linux.read_topology()),
    "memory": lambda: checks.memory(
        linux.free_memory(), linux.total_memory(), linux.memory_quota()
    ),
    "huge pages": _huge_pages,
    "GPUs": lambda: checks.gpus(count_pci_gpus(), linux.nvidia_driver(), inspected_gpus()),
    "kernels": lambda: checks.kernels(
        str(cache_directory()), find_cache_root().note, cache_problem()
    ),
    "packages": lambda: checks.packages(read_versions(), import_errors()),
}


def count_pci_gpus(root: Path = ROOT) -> int:
    """The number of NVIDIA GPUs on the PCI bus, with a driver or without."""
    return sum(
        (device / "vendor").read_text().strip() == NVIDIA
        and (device / "class").read_text().startswith(DISPLAY)
        for device in (root / PCI_FOLDER).glob("*")
    )


def read_versions() -> dict[str, str | None]:
    """The versions of packages; None: not installed."""
    return {name: installed(name) for name in (*REQUIRED, *OPTIONAL)}


def import_errors() -> dict[str, str]:
    """Import the required packages; return why that fails, by package."""
    found = {}
    for package in REQUIRED:
        try:
            import_module(MODULES.get(package, package))
        except Exception as error:  # a broken package may raise anything
            found[package] = reason(error)
    return found


def reason(error: BaseException) -> str:
    """The reason of an exception in one line."""
    if isinstance(error, OSError) and error.strerror:
        prefix = f"{error.filename}: " if error.filename else ""
        return printable(f"{prefix}{error.strerror}", MAX_REASON)
    lines = str(error).strip().splitlines()
    return printable(lines[0] if lines else type(error).__name__, MAX_REASON)


def attempt(decide: Callable[[], Verdict]) -> Verdict:
    """Apply a check; a UsageError means that runs are refused for the same reason.

    Every exception is caught, because the report is needed most where something unexpected is
    wrong.
    """
    try:
        return decide()
    except UsageError as error:
        return Verdict(str(error), "no run can start")
    except Exception as error:
        return Verdict(f"unknown: {reason(error)}", known=False)


def doctor(arguments: Sequence[str]) -> int:
    """Check this machine and this installation, and print what to improve."""
    parser = Parser(doctor, "[options]")
    parser.epilog = (
        "Each check is ok, warn, or unknown (?) if something cannot be read. The exit code is 0 "
        "also if there are warnings."
    )
    parser.output.add_argument(
        "--json", action="store_true", help="all checks and versions as JSON, for bug reports"
    )
    options = parser.read(arguments)
    verdicts = {name: attempt(decide) for name, decide in CHECKS.items()}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    if options.json:
        about = {"hogbatch": version(), "python": python, "system": system}
        report = to_json(about | read_versions(), verdicts)
    else:
        report = to_text(f"hogbatch {version()}, {python}, {system}", verdicts)
    with suppress(RuntimeError):  # there is no home directory
        report = report.replace(f"{Path.home()}/", "~/")
    print(encodable(report, sys.stdout))
    return 0


def to_text(headline: str, verdicts: Mapping[str, Verdict]) -> str:
    """Show one line for each check, with its advice below."""
    lines = [printable(headline), ""]
    column = max(map(len, verdicts))
    for name, verdict in verdicts.items():
        start = f"{verdict.status if verdict.known else '?':4}  {name:{column}}  "
        lines.append(start + printable(verdict.value))
        if verdict.advice:
            lines.append(" " * len(start) + printable(verdict.advice))
    count = sum(verdict.status == "warn" for verdict in verdicts.values())
    return "\n".join([*lines, "", plural(count, "warning") if count else "no warnings"])


def to_json(versions: Mapping[str, str | None], verdicts: Mapping[str, Verdict]) -> str:
    """Show all checks and versions as one JSON object."""
    found = [
        {"name": name, "status": each.status, "value": each.value, "advice": each.advice}
        for name, each in verdicts.items()
    ]
    return json.dumps({"versions": dict(versions), "checks": found}, indent=2)
