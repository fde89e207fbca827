"""The operations that a device provides in addition to those of `hogbatch.kernels.reference`.

Shape letters and rules are the same. With these in NumPy, the host can replace a device.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import Floats, Rows
from hogbatch.kernels.reference import Kernels
from hogbatch.kernels.reference_losses import quiet


class DeviceKernels(Kernels):
    """All operations that a GPU worker calls; this class is the NumPy backend.

    The exchange of a replica with the shared parameters: `params` is the replica, `base` the
    replica without the changes that were not taken yet, so params - base is the change that still
    has to be merged. `shared` may be memory of the host that other workers write at the same time;
    a write is lost only if two workers write one cell at the same moment.

    Copies of the rows of a batch from a set: the set may be memory of the host, which the device
    reads over the link. Cells are float32 or int32.
    """

    @quiet
    def hand_over(
        self,
        pulled: Floats,
        params: Floats,
        base: Floats,
        seen: Floats,
        change: Floats,
        finite: Floats,
    ) -> None:
        """Pull, and take the change of the replica.

        seen[P] += base, where `seen` is what `add` has left there; then
        params = pulled + (params - base); change = params - pulled; base = params.
        finite[0] = 0 if a change is not finite.
        """
        seen += base
        params -= base
        params += pulled
        np.subtract(params, pulled, out=change)
        base[:] = params
        finite[0] *= np.isfinite(change).all()

    def drain(self, values: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """out[N] = values; values = 0."""
        out[:] = values
        values[:] = 0

    @quiet
    def add(
        self,
        fraction: float,
        scale: float,
        seen: Floats,
        change: Floats,
        shared: Floats,
        pulled: Floats,
    ) -> None:
        """shared[P] += fraction * change; pulled = shared; seen = what was added minus change.

        With a `scale` above 0, the change is multiplied by scale / (scale + abs(shared - seen)),
        where `seen`[P] are the parameters that it was computed with: see `stale_weight` in
        hogbatch.store.merge.
        """
        weight = np.float32(fraction)
        if scale > 0:
            weight = weight * (np.float32(scale) / (np.float32(scale) + np.abs(shared - seen)))
        added = change * weight
        shared += added
        pulled[:] = shared
        np.subtract(added, change, out=seen)

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
        distinct = np.unique(inputs.indices[csr.positions(inputs.indptr, rows)[1]])
        touched[: len(distinct)] = distinct
        found[0] = len(distinct)

    @quiet
    def take_rows(
        self,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        params: Floats,
        base: Floats,
        change: Floats,
        finite: Floats,
    ) -> None:
        """change[t] = that of row touched[t] of params[F, H] since `base`, which becomes params.

        finite[0] = 0 if a change is not finite.
        """
        rows = touched[: found[0]]
        change[: found[0]] = params[rows] - base[rows]
        base[rows] = params[rows]
        finite[0] *= np.isfinite(change[: found[0]]).all()

    @quiet
    def rejoin_rows(
        self,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        shared: Floats,
        params: Floats,
        base: Floats,
    ) -> None:
        """params = shared + (params - base); base = shared, for the touched rows of all [F, H]."""
        rows = touched[: found[0]]
        pulled = shared[rows]
        params[rows] = pulled + (params[rows] - base[rows])
        base[rows] = pulled

    @quiet
    def add_rows(
        self,
        fraction: float,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        change: Floats,
        shared: Floats,
    ) -> None:
        """shared[F, H] += fraction * change for touched rows; `change` as `take_rows` leaves it."""
        shared[touched[: found[0]]] += np.float32(fraction) * change[: found[0]]

    def copy_rows(self, source: Any, rows: Rows, out: Any) -> None:
        """out[B, ...] = source[rows], for source[N, ...]."""
        np.take(source, rows, axis=0, out=out, mode="clip")  # "raise" copies twice

    def copy_cells(self, source: Any, starts: Rows, indptr: Rows, out: Any) -> None:
        """out[indptr[b]:indptr[b + 1]] = the cells of source[n] from starts[b] on, for b < B."""
        places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))
        np.take(source, places, out=out[: indptr[-1]], mode="clip")  # "raise" copies twice

    def select_rows(self, indptr: Rows, rows: Rows, starts: Rows, out: Rows, stored: Rows) -> None:
        """out[B + 1] = the indptr of a CSR of only `rows`; stored[0] = out[B].

        starts[b] = indptr[rows[b]]. `stored` may be memory of the host.
        """
        starts[:] = indptr[rows]
        out[0] = 0
        np.cumsum(indptr[rows + 1] - starts, out=out[1:])
        stored[0] = out[-1]
