"""The operations that a device provides in addition to those of `hogbatch.kernels.contract`.

Shape letters and rules are the same. The NumPy backend has them too, so that the host can replace
a device.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import Floats, Kernels, Rows


class ReplicaKernels(Protocol):
    """The operations of a device for the exchange of a replica with the shared parameters.

    `params` is the replica, `base` the replica without the changes that were not taken yet, so
    params - base is the change that still has to be merged. `shared` may be memory of the host
    that other workers write at the same time; a write is lost only if two workers write one cell at
    the same moment.
    """

    def take(self, params: Floats, base: Floats, change: Floats, finite: Floats) -> None:
        """change[P] = params - base; base = params. finite[0] = 0 if a change is not finite."""

    def rejoin(self, pulled: Floats, params: Floats, base: Floats) -> None:
        """params[P] = pulled + (params - base); base = pulled."""

    def add(self, fraction: float, change: Floats, shared: Floats) -> None:
        """shared[P] += fraction * change."""

    def add_damped(
        self, scale: float, fraction: float, seen: Floats, change: Floats, shared: Floats
    ) -> None:
        """shared[P] += fraction * change * scale / (scale + abs(shared - seen)).

        `seen`[P] are the parameters that the change was computed with; see
        hogbatch.store.staleness.
        """

    def find_rows(
        self,
        inputs: Inputs,
        rows: Rows,
        head: NDArray[np.int32],
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
    ) -> None:
        """touched[:found[0]] = the distinct features of the CSR `rows`, in any order.

        `touched` has room for F; `head`[F] is -1 everywhere, before and after.
        """

    def take_rows(
        self,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        params: Floats,
        base: Floats,
        change: Floats,
        finite: Floats,
    ) -> None:
        """`take` on the touched rows of params[F, H]: change[t] is that of row touched[t]."""

    def rejoin_rows(
        self,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        shared: Floats,
        params: Floats,
        base: Floats,
    ) -> None:
        """`rejoin` on the touched rows of params[F, H], with those of shared[F, H]."""

    def add_rows(
        self,
        fraction: float,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        change: Floats,
        shared: Floats,
    ) -> None:
        """`add` on the touched rows of shared[F, H]; `change` as `take_rows` leaves it."""


class StagingKernels(Protocol):
    """The operations of a device that copy the rows of a batch from a set.

    The set may be memory of the host, which the device reads over the link. Cells are float32 or
    int32.
    """

    def copy_rows(self, source: Any, rows: Rows, out: Any) -> None:
        """out[B, ...] = source[rows], for source[N, ...]."""

    def copy_cells(self, source: Any, starts: Rows, indptr: Rows, out: Any) -> None:
        """out[indptr[b]:indptr[b + 1]] = the cells of source[n] from starts[b] on, for b < B."""

    def select_rows(self, indptr: Rows, rows: Rows, starts: Rows, out: Rows, stored: Rows) -> None:
        """out[B + 1] = the indptr of a CSR of only `rows`; stored[0] = out[B].

        starts[b] = indptr[rows[b]]. `stored` may be memory of the host.
        """


class DeviceKernels(Kernels, ReplicaKernels, StagingKernels, Protocol):
    """All operations that a GPU worker calls."""
