"""A server of MLflow on a free port of this machine, and ports without a server."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from http.client import HTTPException

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
_without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def reserved_port():
    """A port on which nobody listens; a server may, but no other program is given it.

    Linux lets two sockets with SO_REUSEADDR have the same port as long as none of them listens.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HERE, 0))
        yield holder.getsockname()[1]


@contextmanager
def server(*command, ready, folder):
    """Run `python -m COMMAND --port PORT` until the end; gives the URL once `ready` is there."""
    with reserved_port() as port, (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--host", HERE, "--port", str(port)],
            cwd=folder,
            env={**os.environ, **QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            url = f"http://{HERE}:{port}"
            wait_for_answer(url + ready, process, folder)
            yield url
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def wait_for_answer(url, process, folder):
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            _without_proxy.open(url, timeout=WITHIN_S).close()
            return
        except (OSError, HTTPException):
            time.sleep(0.05)
    raise AssertionError(f"no answer from {url}: {(folder / 'server.log').read_text()[-2000:]}")
