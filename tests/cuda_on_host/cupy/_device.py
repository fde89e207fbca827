"""The single simulated device: its lock, memory size and errors, and the capturing threads."""

import threading

DEVICES = 1
MEMORY = 1 << 30  # bytes
UNKNOWN = 999  # cudaErrorUnknown: the stand-in reports most errors by name only
LOCK = threading.RLock()  # the device executes one operation at a time
capturing_threads: list[int] = []  # thread identifiers, one for each capture in progress


class CUDAError(RuntimeError):
    """An error with the `status` that CUDA returned; here its name and reason may be given."""

    def __init__(self, status: int | str) -> None:
        super().__init__(status)
        self.status = status if isinstance(status, int) else UNKNOWN


class CUDARuntimeError(CUDAError):
    """A function of the CUDA runtime returned an error."""


def refuse_in_capture(what: str) -> None:
    """Raise an error if the calling thread is capturing a graph, which does not allow `what`."""
    if threading.get_ident() in capturing_threads:
        raise CUDARuntimeError(
            f"cudaErrorStreamCaptureUnsupported: {what} while this thread captures a stream"
        )
