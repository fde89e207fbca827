"""The memory of one server that other servers read from and write to in merges.

One memfd, so that the processes of a server share it, and so that nothing is left behind when they
end. A header at its start describes the areas, so that a process which gets only the descriptor can
map it.
"""

import os
import struct
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.decisions.areas import ALL, Areas, areas_for_any
from hogbatch.cluster.decisions.transfers import Reduction
from hogbatch.errors import ProtocolError
from hogbatch.store.layout import Layout, arrange
from hogbatch.store.segment import Segment

Floats = NDArray[np.float32]

FLOAT: Final = 4  # bytes
SERVERS: Final = 16  # in one merge, unless told otherwise
_HEADER = struct.Struct("<8s5Q")  # magic, size, staging, outgoing, residual, servers
_MAGIC = b"hogmerge"


class ExchangeBuffers:
    """Areas of float32 numbers, each on its own cache lines.

    `mean_is_shown`, uint32[1], tells whether the parameters of the server are the moving mean now.

    ========  =======  =================================================================
    name      numbers  contents
    ========  =======  =================================================================
    merged    P        the last merged model; written by `ChangeExchange.copy` of another server
    change    P        this server's parameters minus `merged`; only this server writes it
    sum       P        the weighted sum of all servers' changes
    staging            parts received from others
    outgoing           compressed parts to be sent
    residual  P or 0   what compression has not sent yet
    kept      P or 0   the residual after the present merge, until it counts
    ========  =======  =================================================================
    """

    def __init__(self, segment: Segment, size: int, servers: int) -> None:
        """Use :meth:`create` or :meth:`attach`."""
        self._segment = segment
        self.size = size  # P
        self.servers = servers  # for which the areas are large enough
        self.memory: NDArray[np.uint8] = segment.memory  # everything
        self.merged: Floats = segment.array("merged")
        self.change: Floats = segment.array("change")
        self.sum: Floats = segment.array("sum")
        self.staging: Floats = segment.array("staging")
        self.outgoing: Floats = segment.array("outgoing")
        self.residual: Floats = segment.array("residual")
        self.kept: Floats = segment.array("kept")
        self.mean_is_shown: NDArray[np.uint32] = segment.array("mean_is_shown")  # [1]

    @classmethod
    def create(
        cls, size: int, reductions: Sequence[Reduction] = ALL, servers: int = SERVERS
    ) -> Self:
        """Allocate areas for `size` parameters, filled with zeros.

        They are large enough for merges of up to `servers` servers by any of `reductions`. In
        float32, that takes 4 times the memory of the model; the median takes 17 times with 100
        servers, since each of them receives a tenth of the changes of all others.
        UsageError with the needed bytes if there is not enough memory.
        """
        needed = areas_for_any(size, servers, reductions)
        segment = Segment.create("exchange", _layout(size, needed))
        header = _HEADER.pack(
            _MAGIC, size, needed.staging, needed.outgoing, needed.residual, servers
        )
        segment.memory[: len(header)] = np.frombuffer(header, np.uint8)
        return cls(segment, size, servers)

    @classmethod
    def attach(cls, fd: int) -> Self:
        """Map the buffers that another process has created; takes ownership of `fd`.

        ProtocolError if it is something else; `fd` stays open then.
        """
        content = os.pread(fd, _HEADER.size, 0)
        if len(content) < _HEADER.size or not content.startswith(_MAGIC):
            raise ProtocolError(
                "expected the descriptor of the memory of a merge; got another one: run all "
                "processes of a server from the same version of hogbatch"
            )
        _, size, staging, outgoing, residual, servers = _HEADER.unpack(content)
        layout = _layout(size, Areas(staging, outgoing, residual))
        return cls(Segment.attach(fd, layout, writable=True), size, servers)

    @property
    def fd(self) -> int:
        """The descriptor of the memory, to be given to other processes of this server."""
        return self._segment.fd

    def offset(self, name: str) -> int:
        """The offset of the area `name` in :attr:`memory`, in bytes.

        All servers with the same P, `reductions` and `servers` have the same offsets.
        """
        found = {field.name: field.offset for field in self._segment.layout.fields}
        return found[name]

    def close(self) -> None:
        """Close the descriptor; the memory is unmapped with its last view."""
        self._segment.close()


def _layout(size: int, needed: Areas) -> Layout:
    each = {"merged": size, "change": size, "sum": size} | {
        "staging": needed.staging,
        "outgoing": needed.outgoing,
        "residual": needed.residual,
        "kept": needed.residual,
    }
    return arrange(
        {"header": ("uint8", (_HEADER.size,))},
        *({name: ("<f4", (count,))} for name, count in each.items()),
        {"mean_is_shown": ("<u4", (1,))},
    )
