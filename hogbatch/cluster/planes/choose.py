"""Which plane moves the changes of servers."""

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.planes import nixl
from hogbatch.cluster.planes.base import Plane
from hogbatch.cluster.planes.relayed import RelayedPlane
from hogbatch.cluster.planes.socket_relay import SocketRelay
from hogbatch.errors import UsageError


def open_plane(wanted: str, buffers: ExchangeBuffers, relay: FrameSocket, name: str) -> Plane:
    """The plane that is `wanted`; "auto": NIXL if it is installed, else the relay called `name`.

    UsageError if NIXL is wanted but cannot be used.
    """
    if wanted != "relay":
        why_not = nixl.unavailable()
        if why_not is None:
            return nixl.NixlPlane(buffers)
        if wanted == "nixl":
            raise UsageError(f"NIXL cannot be used: {why_not}")
    return RelayedPlane(buffers, SocketRelay(buffers, relay), name)
