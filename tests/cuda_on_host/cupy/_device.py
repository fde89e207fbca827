"""The single simulated device: its lock, memory size and errors, and the capturing threads."""

import threading

DEVICES = 1
MEMORY = 1 << 30  # bytes
LOCK = threading.RLock()  # the device executes one operation at a time
capturing_threads: list[int] = []  # thread identifiers, one for each capture in progress


class CUDARuntimeError(RuntimeError):
    """A function of the CUDA runtime returned an error."""


def refuse_in_capture(what: str) -> None:
    """Raise an error if the calling thread is capturing a graph, which does not allow `what`."""
    if threading.get_ident() in capturing_threads:
        raise CUDARuntimeError(
            f"cudaErrorStreamCaptureUnsupported: {what} while this thread captures a stream"
        )
