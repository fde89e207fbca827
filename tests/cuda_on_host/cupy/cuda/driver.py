"""cupy.cuda.driver: nothing here fails at launch, so its error is only a name to catch."""


class CUDADriverError(RuntimeError):
    """What a launch raises on a device that has failed."""
