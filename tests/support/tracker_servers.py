"""Settings of the clients of trackers, and ports of this machine without a server."""

import socket
from contextlib import contextmanager

from benchmarks.common.job import WITHIN_S

HERE = "127.0.0.1"
QUIET = {  # nothing is reported to the makers of the clients
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB__SERVICE_WAIT": str(WITHIN_S),
    "NO_PROXY": HERE,
    "no_proxy": HERE,
}


@contextmanager
def reserved_port():
    """A port on which nobody listens; a server may, but no other program is given it.

    Linux lets two sockets with SO_REUSEADDR have the same port as long as none of them listens.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HERE, 0))
        yield holder.getsockname()[1]
