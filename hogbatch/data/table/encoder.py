"""What encoders of columns have in common: the form of their features and of their contents."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.schema import by_field, convert

Arrays: TypeAlias = dict[str, NDArray[Any]]


class Block(NamedTuple):
    """The features of B rows of one or several columns: k stored values per row."""

    features: NDArray[np.int32]  # [B, k], or [1, k] if all rows have the same
    values: NDArray[np.float32]  # [B, k]


class StoredByField:
    """Scalars and arrays of an encoder for the model file, by the names of its fields."""

    __slots__ = ()

    def description(self) -> dict[str, Any]:
        """The scalars, as JSON."""
        return by_field(self)[0]

    def arrays(self) -> Arrays:
        """The arrays by name."""
        return by_field(self)[1]

    @classmethod
    def from_description(cls, found: Mapping[str, Any], arrays: Arrays, name: str) -> Self:
        """The encoder with these scalars and arrays; ValueError, with `name`, for others."""
        encoder: Self = convert({**found, **arrays}, cls, name)
        encoder.validate(name)
        return encoder

    def validate(self, name: str) -> None:
        """ValueError, with `name`, for values that `fit` does not return."""
        raise NotImplementedError
