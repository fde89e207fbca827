"""Backends by name. There is no current backend: pass one to who needs it."""

from importlib import import_module
from typing import cast

from hogbatch.kernels.contract import Kernels

BACKENDS = {
    "reference": "hogbatch.kernels.reference",
    "cpu": "hogbatch.kernels.cpu.operations",
}  # the gpu backend comes with its device: hogbatch.kernels.gpu.device


def load(name: str) -> Kernels:
    """Import backend `name`; its packages are needed only from here on."""
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {name!r}")
    return cast(Kernels, import_module(BACKENDS[name]))
