"""Devices without some feature, or with replaced operations."""

from hogbatch.kernels import reference
from hogbatch.kernels.gpu.device import HostDevice


class Unmapped(HostDevice):
    """A device that cannot map host memory."""

    def mapped(self, array):
        return None


class Unpinned(HostDevice):
    """A device for which host memory cannot be pinned."""

    def pin(self, array):
        return False


class Kernels:
    """The operations of the reference, except those given."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        return getattr(reference, name)
