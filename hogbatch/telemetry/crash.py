"""What a bug leaves behind for its report: crash.txt in the run directory."""

import platform
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hogbatch.errors import HogbatchError

PACKAGES = ("hogbatch", "numpy", "numba", "llvmlite", "msgspec", "pyzmq", "safetensors")

Heard = tuple[float, str, object]  # seconds by the monotonic clock, worker, message


@contextmanager
def crash_report(path: Path, config: str, heard: Iterable[Heard]) -> Iterator[None]:
    """Write `path` when the body raises what nobody meant to raise, and pass that on with a note
    that says so. `config` and the messages `heard` last are part of the report.
    """
    try:
        yield
    except HogbatchError:
        raise
    except Exception as error:
        try:
            path.write_text(_report(error, config, heard), encoding="utf-8")
        except OSError as failure:
            error.add_note(f"hogbatch: this is a bug; {path} was not written: {failure.strerror}")
        else:
            error.add_note(f"hogbatch: this is a bug; please report it, with {path}")
        raise


def _report(error: Exception, config: str, heard: Iterable[Heard]) -> str:
    messages = [f"{seconds:.4f} {worker} {message}" for seconds, worker, message in heard]
    parts = {
        "Traceback": "".join(traceback.format_exception(error)),
        "Versions": "\n".join([f"Python {platform.python_version()}", platform.platform()])
        + "".join(f"\n{package} {_version(package)}" for package in PACKAGES),
        "Configuration": config,
        f"The last {len(messages)} messages: seconds, worker, message": "\n".join(messages),
    }
    return "\n".join(f"# {title}\n\n{text.rstrip()}\n" for title, text in parts.items())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"
