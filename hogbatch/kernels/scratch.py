"""The arrays that one batch needs on any backend: parts of one array, which is allocated once."""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hogbatch.kernels.contract import Operands
from hogbatch.kernels.layers import LayerView
from hogbatch.kernels.reference import Kernels

ALIGNMENT = 256  # bytes: offsets of scratch arrays are multiples of it, for matrix products


class Scratch(NamedTuple):
    """Scratch arrays for a batch of B rows, S of which are scored at a time."""

    batch: int  # B
    gathered: Operands  # [B, K] of the first layer; [B, 0] if rows are not copied
    activated: tuple[Operands, ...]  # [B, H] of each layer; of the last the scores, floats[S, H]
    grads: tuple[Operands, ...]  # the same shapes, [S, H] of the last
    values: Operands  # the inputs of all layers: `gathered`, `activated`, and gaps between them

    def part(self, rows: slice) -> "Scratch":
        """Return the scratch for scoring and learning from `rows` of the batch."""
        count = len(self.activated[0][rows])
        activated, grads = (
            (*(each[rows] for each in arrays[:-1]), arrays[-1][:count])
            for arrays in (self.activated, self.grads)
        )
        return self._replace(activated=activated, grads=grads, values=activated[-2])


class ScratchSpace:
    """The scratch of one network. Scores have the type `dtype` of the parameters.

    `xp` is the array module of the backend (`Device.xp`).
    """

    def __init__(
        self, kernels: Kernels, xp: Any, layers: tuple[LayerView, ...], dtype: np.dtype[Any]
    ) -> None:
        self._kernels, self._xp, self._layers = kernels, xp, layers
        self._dtype = dtype
        self._space: Any = None

    def reserve(self, batch: int, scored: int, *, by_rows: bool) -> bool:
        """Allocate scratch for batches of `batch` rows; return True if arrays were moved.

        `scored` rows are scored at a time; with `by_rows`, inputs are not copied.
        """
        *_, (needed, _, _) = self._places(batch, scored, by_rows)
        if self._space is not None and needed <= self._space.size:
            return False
        self._space = None  # freed first: the device may not have memory for both
        self._space = self._xp.empty(needed, np.uint8)
        return True

    def arrays(self, batch: int, scored: int, *, by_rows: bool) -> Scratch:
        """Return scratch for `batch` rows; allocates it if necessary."""
        self.reserve(batch, scored, by_rows=by_rows)
        *places, _ = self._places(batch, scored, by_rows)
        arrays = [
            self._space[begin : begin + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for begin, shape, dtype in places
        ]
        count = len(self._layers)
        activated, grads = arrays[1 : count + 1], arrays[count + 1 :]
        values = self._space[: places[count][0]].view(places[0][2])
        return Scratch(batch, arrays[0], tuple(activated), tuple(grads), values)

    def _places(
        self, batch: int, scored: int, by_rows: bool
    ) -> Iterator[tuple[int, tuple[int, int], np.dtype[Any]]]:
        """Where each array begins, in bytes, its shape and type, in the order of `Scratch`.

        The last one is an empty array at the end.
        """
        operand, layers = self._kernels.operand_type(self._dtype), self._layers
        gathered = (batch, 0 if by_rows else layers[0].fan_in), operand
        hidden = [((batch, view.fan_out), operand) for view in layers[:-1]]
        last, end = (scored, layers[-1].fan_out), ((0, 0), operand)
        begin = 0
        for shape, kind in (gathered, *hidden, (last, self._dtype), *hidden, (last, operand), end):
            dtype = np.dtype(kind)
            yield begin, shape, dtype
            begin += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
