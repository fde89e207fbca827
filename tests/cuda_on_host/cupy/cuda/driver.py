"""cupy.cuda.driver: defines its error, which is never raised because launches do not fail here."""


class CUDADriverError(RuntimeError):
    """Raised by a launch on a failed device."""
