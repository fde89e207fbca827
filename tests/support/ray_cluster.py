"""A Ray cluster of two machines, which are processes of this one, with a core each."""

import os
import tempfile
from contextlib import contextmanager

import pytest

from benchmarks.common.job import WITHIN_S, command_line, pids

MACHINE = {"num_cpus": 1, "object_store_memory": 100 << 20}


@contextmanager
def two_machines():
    """Start the cluster (`ray.cluster_utils.Cluster`), and end it."""
    from ray.cluster_utils import Cluster

    settings = {
        "RAY_memory_monitor_refresh_ms": "0",  # other programs may have all the memory they want
        "RAY_gcs_server_port_wait_time_s": str(WITHIN_S),
    }
    head = MACHINE | {"include_dashboard": False, "dashboard_agent_listen_port": 0, "wait": False}
    with (
        # Not /tmp/ray, which may belong to another user; the paths of Ray's sockets must be short.
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            patch.delenv(name)
        for name, value in (settings | {"RAY_TMPDIR": folder}).items():
            patch.setenv(name, value)
        made = Cluster(initialize_head=True, head_node_args=head)
        add_machine(made)
        yield made
        made.shutdown()


def add_machine(cluster):
    """Add a machine, and wait until all machines of the cluster are there."""
    cluster.add_node(**MACHINE, wait=False)
    cluster.wait_for_nodes(WITHIN_S)


def processes_that_call_ray(driver):
    """The process that calls Ray for the process `driver`, if it is running."""
    module, driver = b"hogbatch.cluster.ray.process", str(driver).encode()
    arguments = {pid: command_line(pid).split(b"\0") for pid in pids()}
    return [pid for pid, each in arguments.items() if module in each and driver in each]
