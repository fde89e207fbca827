"""Run the same tests with arrays on the host and on a GPU."""

import numpy as np

KERNELS = ["reference", "cpu", "gpu"]  # values of the fixture `kernels`, as an axis of pairs()
DEVICES = ["reference", "gpu"]  # and of `device_kernels`


class Backend:
    """A backend whose operations take NumPy arrays, independent of its device.

    `backend.step(...)` moves the arrays (also those in named tuples) to the device, runs the
    backend's `step` there, and moves all of them back, so that outputs appear in place.
    """

    def __init__(self, device, module):
        self.device = device
        self.module = module

    def __getattr__(self, operation):
        function = getattr(self.module, operation)

        def call(*arguments):
            there = [self.move(each) for each in arguments]
            result = function(*there)
            for here, each in zip(arguments, there, strict=True):
                self.fetch(each, here)
            return result

        return call

    def move(self, value):
        """`value` with its arrays on the device."""
        if isinstance(value, np.ndarray):
            return self.device.to_device(value)
        if isinstance(value, tuple):
            moved = map(self.move, value)
            return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
        return value

    def fetch(self, there, here):
        """Copy the arrays created by `move` back to the original arrays."""
        if isinstance(here, np.ndarray):
            self.device.to_host(there, here)
        elif isinstance(here, tuple):
            for part_there, part_here in zip(there, here, strict=True):
                self.fetch(part_there, part_here)
