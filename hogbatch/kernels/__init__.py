"""Kernel backends by name. There is no global backend: callers pass one explicitly."""

from importlib import import_module
from typing import cast

from hogbatch.kernels.contract import Kernels

BACKENDS = {
    "reference": "hogbatch.kernels.reference",
    "cpu": "hogbatch.kernels.cpu.operations",
}  # the gpu backend is loaded with its device: hogbatch.kernels.gpu.cuda_device


def load(name: str) -> Kernels:
    """Import the backend `name`; the packages that it depends on are first imported here."""
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {name!r}")
    return cast(Kernels, import_module(BACKENDS[name]))
