"""crash.txt in the run directory: what a bug report needs."""

import platform
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hogbatch.errors import HogbatchError
from hogbatch.machine.environment import installed
from hogbatch.version import version

PACKAGES = ("numpy", "numba", "llvmlite", "msgspec", "pyarrow", "pyzmq", "rich", "safetensors")

ReceivedMessage = tuple[float, str, object]  # seconds by the monotonic clock, worker, message


@contextmanager
def crash_report(path: Path, config: str, received: Iterable[ReceivedMessage]) -> Iterator[None]:
    """Write `path` when the body raises an unexpected exception, add a note to it and re-raise it.

    The report contains `config` and the last messages `received`.
    """
    try:
        yield
    except HogbatchError:
        raise
    except Exception as error:
        try:
            path.write_text(_report(error, config, received), encoding="utf-8")
        except OSError as failure:
            error.add_note(f"hogbatch: this is a bug; {path} was not written: {failure.strerror}")
        else:
            error.add_note(f"hogbatch: this is a bug; please report it, with {path}")
        raise


def _report(error: Exception, config: str, received: Iterable[ReceivedMessage]) -> str:
    messages = [f"{seconds:.4f} {worker} {message}" for seconds, worker, message in received]
    parts = {
        "Traceback": "".join(traceback.format_exception(error)),
        "Versions": "\n".join(
            [
                *(f"Python {platform.python_version()}", platform.platform()),
                f"hogbatch {version()}",
                *(f"{package} {installed(package) or 'is not installed'}" for package in PACKAGES),
            ]
        ),
        "Configuration": config,
        f"The last {len(messages)} messages: seconds, worker, message": "\n".join(messages),
    }
    return "\n".join(f"# {title}\n\n{text.rstrip()}\n" for title, text in parts.items())
