"""A model in shared memory, as flat arrays; :mod:`hogbatch.model.network` locates its tensors."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.store.layout import PAGE, Shape
from hogbatch.store.segment import Segment


@dataclass(frozen=True, slots=True)
class SharedModel:
    """P parameters and the optimizer slots; in shared memory, all workers write without locks."""

    params: NDArray[np.float32]  # [P]
    first: NDArray[np.float32]  # first optimizer slot [P], or [0] if the optimizer has none
    second: NDArray[np.float32]  # second optimizer slot [P], or [0] if it has fewer than two
    steps: NDArray[np.int64]  # [1], optimizer steps of the CPU workers so far
    merges: NDArray[np.int64]  # [1], merges of the GPU workers so far

    @staticmethod
    def fields(parameters: int, slots: int) -> Mapping[str, tuple[str, Shape]]:
        """The arrays for P = `parameters` and 0, 1 or 2 optimizer slots.

        They are one group of `layout.arrange`, so that no other array shares their pages.
        """
        return {
            "model/params": ("<f4", (parameters,)),
            "model/first": ("<f4", (parameters if slots > 0 else 0,)),
            "model/second": ("<f4", (parameters if slots > 1 else 0,)),
            "model/steps": ("<i8", (1,)),
            "model/merges": ("<i8", (1,)),
        }

    @classmethod
    def of(cls, segment: Segment) -> Self:
        return cls(*(segment.array(f"model/{field.name}") for field in fields(cls)))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, as in a checkpoint."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def copy(self) -> Self:
        """Copy it to memory of this process; workers may write it meanwhile."""
        return type(self)(**{name: array.copy() for name, array in self.arrays.items()})

    def assign(self, source: Self) -> None:
        """Overwrite it with `source`, which workers may write meanwhile, but not this one."""
        for name, array in self.arrays.items():
            array[:] = getattr(source, name)

    @property
    def memory(self) -> NDArray[np.uint8]:
        """All pages of the model, as one contiguous view of bytes."""
        start = self.params.ctypes.data
        end = self.merges.ctypes.data + self.merges.nbytes
        size = -(-(end - start) // PAGE) * PAGE
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))

    @property
    def updates(self) -> int:
        """Updates of all workers so far; counted without locks, so a few may be missing."""
        return int(self.steps[0]) + int(self.merges[0])
