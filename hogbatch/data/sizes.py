"""The sizes of a set of rows, from which memory and plans of a run follow without the rows."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

SUMS: Final = ("rows", "stored", "listed")  # sizes of several sets together
MOST: Final = ("max_stored", "max_listed")


@dataclass(frozen=True, slots=True)
class SetSizes:
    """The sizes of the arrays of N rows, as in `batch.Examples`."""

    rows: int  # N
    features: int  # F
    sparse: bool  # inputs are in CSR form
    stored: int = 0  # stored values of sparse inputs
    max_stored: int = 0  # of one row
    lists: bool = False  # labels are lists
    listed: int = 0  # labels in all lists
    max_listed: int = 0  # of one row
    weighted: bool = False  # rows have weights
    targets: int = 1  # labels of a row that are not in lists

    @classmethod
    def sum(cls, parts: Iterable["SetSizes"], features: int) -> Self:
        """The sizes of the rows of all `parts` (at least one) together, with F = `features`.

        All must have inputs and labels of the same form, as many targets, and weights or none.
        """
        every = [asdict(part) for part in parts]
        found: dict[str, Any] = {**every[0], "features": features}
        for combine, names in ((sum, SUMS), (max, MOST)):
            found |= {name: combine(each[name] for each in every) for name in names}
        return cls(**found)

    @property
    def values(self) -> int:
        """Numbers of the inputs that are in memory."""
        return self.stored if self.sparse else self.rows * self.features

    def stored_in(self, batch: int) -> int:
        """An upper bound of the stored values in `batch` rows; 0 for dense inputs."""
        return min(self.stored, batch * self.max_stored)

    def listed_in(self, batch: int) -> int:
        """An upper bound of the labels in the lists of `batch` rows."""
        return min(self.listed, batch * self.max_listed)


def longest(indptr: NDArray[np.int64]) -> int:
    """The largest number of entries in one row of a CSR matrix; 0 if `indptr` is empty."""
    return int(np.diff(indptr).max(initial=0))
