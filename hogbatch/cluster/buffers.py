"""The memory of one server that other servers read from and write to in merges.

One memfd, so that the processes of a server share it, and so that nothing is left behind when they
end.
"""

from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import Floats
from hogbatch.store.layout import Layout, arrange
from hogbatch.store.segment import Segment

FLOAT: Final = 4  # bytes


class ExchangeBuffers:
    """Areas of P float32 numbers, each on its own cache lines.

    `mean_is_shown`, uint32[1], tells whether the parameters of the server are the moving mean now.

    ========  =================================================================
    name      contents
    ========  =================================================================
    merged    the last merged model
    change    this server's parameters minus `merged`; only this server writes it
    sum       the weighted sum of all servers' changes
    ========  =================================================================
    """

    def __init__(self, segment: Segment) -> None:
        """Use :meth:`create` or :meth:`attach`."""
        self.segment = segment
        self.memory: NDArray[np.uint8] = segment.memory  # everything
        self.merged: Floats = segment.array("merged")
        self.change: Floats = segment.array("change")
        self.sum: Floats = segment.array("sum")
        self.mean_is_shown: NDArray[np.uint32] = segment.array("mean_is_shown")  # [1]

    @classmethod
    def create(cls, size: int) -> Self:
        """Allocate areas for P = `size` parameters, filled with zeros.

        UsageError with the needed bytes if there is not enough memory.
        """
        layout = arrange(
            *({name: ("<f4", (size,))} for name in ("merged", "change", "sum")),
            {"mean_is_shown": ("<u4", (1,))},
        )
        return cls(Segment.create("exchange", layout))

    @classmethod
    def attach(cls, fd: int, layout: Layout) -> Self:
        """Map the buffers that another process has created; takes ownership of `fd`."""
        return cls(Segment.attach(fd, layout, writable=True))

    def offset(self, name: str) -> int:
        """The offset of the area `name` in :attr:`memory`, in bytes.

        All servers of a run have the same offsets.
        """
        found = {field.name: field.offset for field in self.segment.layout.fields}
        return found[name]

    def close(self) -> None:
        """Close the descriptor; the memory is unmapped with its last view."""
        self.segment.close()
