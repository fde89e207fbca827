"""The one pretended device: its lock, its memory's size, its errors, and who is recording on it."""

import threading

DEVICES = 1
MEMORY = 1 << 30  # bytes
LOCK = threading.RLock()  # one thing at a time happens on the device
capturing_threads: list[int] = []  # ident of the thread, once for each capture it has begun


class CUDARuntimeError(RuntimeError):
    """What a function of the CUDA runtime returned, if not success."""


def refuse_in_capture(what: str) -> None:
    """Raise if the calling thread is recording a graph, which allows no `what`."""
    if threading.get_ident() in capturing_threads:
        raise CUDARuntimeError(
            f"cudaErrorStreamCaptureUnsupported: {what} while this thread captures a stream"
        )
