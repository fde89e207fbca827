"""Training in the kernel of a notebook, which has an event loop and handlers of its own."""

import os
import subprocess
import sys
import tempfile

# Runs cells in a kernel and prints what they print. In a process of its own, because the packages
# of notebooks start threads and warn.
NOTEBOOK = """
import sys
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="python3", transport="ipc")  # which needs no free port
manager.start_kernel()
client = manager.client()
client.start_channels()
try:
    client.wait_for_ready(timeout=180)
    for cell in sys.stdin.read().split("# next cell"):
        reply = client.execute_interactive(cell, timeout=300)["content"]
        if reply["status"] != "ok":
            sys.exit("\\n".join(reply["traceback"]))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""
# Folders of the user, which may have other kernels and settings.
JUPYTER = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
BEFORE = """
import os, signal, threading
from pathlib import Path
import numpy as np
import hogbatch
def children_of(task):
    try:
        return (task / "children").read_text().split()
    except OSError:  # the thread has just ended
        return []
def state():
    children = [p for task in Path("/proc/self/task").iterdir() for p in children_of(task)]
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    return children, handlers, threading.active_count()
x = np.random.default_rng(0).normal(size=(300, 4)).astype("f4")
y = x[:, 0] > 0
usual = dict(quiet=True, epochs=60, hidden=(8,))
# next cell
hogbatch.train(x, y, run_dir=FOLDER + "/warm", **usual)  # starts the threads of libraries
before = state()
"""
CALLS = (
    "found = hogbatch.train(x, y, run_dir=FOLDER + '/run', **usual).model.predict(x)",
    "found = hogbatch.HogbatchClassifier(epochs=60, hidden=(8,)).fit(x, y).predict(x)",
    "run = hogbatch.train(x, y, run_dir=FOLDER + '/process', workers='cpu:1', **usual)\n"
    "found = run.model.predict(x)",
    "def fit():\n"
    "    global found\n"
    "    found = hogbatch.train(x, y, run_dir=FOLDER + '/thread', **usual).model.predict(x)\n"
    "thread = threading.Thread(target=fit)\n"
    "thread.start()\n"
    "thread.join()",
)
AFTER = """
# next cell
assert state() == before, (state(), before)
print("accuracy", (found == y).mean())
"""


def test_a_run_leaves_the_kernel_of_a_notebook_as_it_was(tmp_path):
    """A run on arrays, an estimator, a run with worker processes, and a run on a thread."""
    calls = "".join(f"# next cell\n{call}{AFTER}" for call in CALLS)
    with tempfile.TemporaryDirectory() as home:  # with a short path, as addresses need
        done = subprocess.run(
            [sys.executable, "-c", NOTEBOOK],
            input=f"FOLDER = {str(tmp_path)!r}\n{BEFORE}{calls}",
            env={**os.environ, **dict.fromkeys(JUPYTER, home), "JUPYTER_PREFER_ENV_PATH": "1"},
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr
    accuracies = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(accuracies) == len(CALLS) and min(accuracies) > 0.8
