"""cupy.cuda.driver: defines its error, which is never raised because launches do not fail here."""

from cupy._device import CUDAError


class CUDADriverError(CUDAError):
    """Raised by a launch on a failed device."""
