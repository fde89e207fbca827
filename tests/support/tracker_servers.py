"""Servers of experiment trackers, on a free port of this machine."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

WITHIN_S = 60
QUIET = {  # nothing is reported to the makers of the clients
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "WANDB_ERROR_REPORTING": "false",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url, **body):
    """The JSON that a server answers to a GET request, or to a POST of `body`."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        return json.load(answer)


@contextmanager
def server(*command, ready, folder):
    """Run `python -m COMMAND --port PORT` until the end; gives the URL once `ready` is there."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env={**os.environ, **QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for_answer(url + ready, process, folder)
        yield url
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def wait_for_answer(url, process, folder):
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=WITHIN_S).close()
            return
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError(f"no answer from {url}: {(folder / 'server.log').read_text()[-2000:]}")
