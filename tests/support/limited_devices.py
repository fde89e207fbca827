"""Devices that lack something, or fail where a test wants it."""

from hogbatch.kernels import reference
from hogbatch.kernels.gpu.device import HostDevice


class Unmapped(HostDevice):
    """A device that cannot see the host's memory."""

    def mapped(self, array):
        return None


class Unpinned(HostDevice):
    """A device for which the host's memory cannot be pinned."""

    def pin(self, array):
        return False


class Kernels:
    """The operations of the reference, but those given."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        return getattr(reference, name)
