"""Changes of a replica that are not merged because they are not finite."""

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import HogbatchError
from hogbatch.store.scan import first_not_finite

MAX_REFUSED = 3  # consecutive changes that are not finite; then the worker fails


class RefusedChanges:
    """Counts consecutive changes with NaN or Inf; `shared`[P] are the shared parameters."""

    def __init__(self, shared: NDArray[np.float32]) -> None:
        self._shared = shared
        self._count = 0

    def add(self) -> None:
        """Count a change, unless the shared parameters are not finite either.

        HogbatchError after MAX_REFUSED changes.
        """
        if first_not_finite(self._shared) is not None:
            return  # the coordinator will detect it too, and roll the model back
        self._count += 1
        if self._count >= MAX_REFUSED:
            raise HogbatchError(f"{self._count} merges in a row were not finite")

    def reset(self) -> None:
        """Start again, after a change that was merged."""
        self._count = 0
