import os

import pytest

from hogbatch.machine.linux import (
    cpu_quota,
    free_memory,
    memory_quota,
    processor_name,
    read_topology,
)
from tests.support.machine_files import write_files


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A function that creates the files of a simulated server; returns its root directory."""

    def make(files, mask=range(8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(mask))
        return write_files(tmp_path, files)

    return make


def node(number):
    return f"sys/devices/system/node/node{number}/cpulist"


def siblings(core):
    return f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"


CGROUP = "sys/fs/cgroup/"
INVALID = {
    node(0): "all",
    siblings(0): "0-",
    "proc/self/cgroup": "0::/",
    CGROUP + "cpu.max": "x",
}
TWO_NODES = {node(0): "0-1,4-5", node(1): "2-3,6-7"}
SMT = {siblings(core): f"{core % 4},{core % 4 + 4}" for core in range(8)}
ONE_EACH = tuple({core} for core in range(8))


@pytest.mark.parametrize(
    ("files", "mask", "nodes", "groups"),
    [
        (
            TWO_NODES | SMT,
            range(8),
            ({0, 1, 4, 5}, {2, 3, 6, 7}),
            ({0, 4}, {1, 5}, {2, 6}, {3, 7}),
        ),
        (
            {node(0): "0-3", node(1): "4-7", siblings(2): "2-3", siblings(3): "2-3"},
            [1, 2],
            ({1, 2},),
            ({1}, {2}),
        ),
        ({node(0): "0-7", node(1): ""}, range(8), (set(range(8)),), ONE_EACH),
        ({node(0): "0-5"}, range(8), (set(range(6)), {6, 7}), ONE_EACH),
        ({}, [3, 5], ({3, 5},), ({3}, {5})),
        (INVALID, [0], ({0},), ({0},)),
    ],
    ids=["two nodes with SMT", "mask", "no cores", "no node", "no files", "invalid"],
)
def test_cores_of_the_mask_are_read_with_their_nodes_and_siblings(
    server, files, mask, nodes, groups
):
    topology = read_topology(server(files, mask))
    assert topology.cores == set(mask) and topology.quota is None
    assert (topology.nodes, topology.siblings) == (nodes, groups)


AB = {"proc/self/cgroup": "0::/a/b"}
CPU_JOB = {"proc/self/cgroup": "4:cpu,cpuacct:/job\n0::/"}


def cpu_v1(group, quota, period=100000):
    files = {"quota": quota, "period": period}
    return {f"{CGROUP}{group}/cpu.cfs_{name}_us": text for name, text in files.items()}


def cpu_v2(**limits):
    """The limits of groups, by their names."""
    return {
        f"{CGROUP}{group.replace('_', '/')}/cpu.max".replace("root/", ""): f"{limit} 100000"
        for group, limit in limits.items()
    }


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        (AB | cpu_v2(a_b=150000), 1.5),
        (AB | cpu_v2(a_b="max"), None),
        (AB | cpu_v2(a_b="max", a=400000), 4.0),
        (AB | cpu_v2(a_b=300000, a=200000, root=500000), 2.0),
        ({"proc/self/cgroup": "0::/docker/f00"} | cpu_v2(root=50000), 0.5),
        ({"proc/self/cgroup": "0::/../other"} | cpu_v2(root=100000), 1.0),
        (CPU_JOB | cpu_v1("cpu,cpuacct/job", 250000), 2.5),
        (CPU_JOB | cpu_v1("cpu", 50000, 50000) | cpu_v1("cpu/job", -1), 1.0),
        ({"proc/self/cgroup": "1:cpuacct:/job"} | cpu_v1("cpuacct/job", 250000), None),
        (cpu_v2(root=50000), None),
        ({"proc/self/cgroup": "what is this"}, None),
    ],
    ids=[
        *("v2", "v2-max", "v2-parent", "v2-tightest", "v2-container", "v2-outside"),
        *("v1", "v1-parent", "v1-other-controller", "no-membership", "nonsense"),
    ],
)
def test_the_tightest_cpu_quota_counts(server, files, quota):
    assert cpu_quota(server(files)) == quota


STAT = "anon 5\ninactive_file {}\ntotal_inactive_file {}"


def v2(group, limit, usage, unused=0):
    files = {"max": limit, "current": usage, "stat": STAT.format(unused, "x")}
    return {f"{CGROUP}{group}memory.{name}": text for name, text in files.items()}


def v1(group, limit, usage, unused=0):
    files = {"limit_in_bytes": limit, "usage_in_bytes": usage, "stat": STAT.format("x", unused)}
    return {f"{CGROUP}{group}/memory.{name}": text for name, text in files.items()}


JOB = {"proc/self/cgroup": "4:memory:/job\n5:cpu:/\n0::/"}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        (AB | v2("a/b/", 1000, 400), 600),
        (AB | v2("a/b/", 1000, 400, unused=150), 750),
        (AB | v2("a/b/", "max", 400), None),
        (AB | v2("a/b/", "max", 400) | v2("a/", 1000, 900), 100),
        (AB | v2("a/b/", 500, 400) | v2("a/", 1000, 950), 50),
        (AB | v2("a/b/", 500, 900), 0),
        (AB | {CGROUP + "a/b/memory.max": 500}, None),
        (AB | {CGROUP + "a/b/memory.max": 500, CGROUP + "a/b/memory.current": 200}, 300),
        (JOB | v1("memory/job", 1000, 400, unused=50), 650),
        (JOB | v1("memory/job", 9223372036854771712, 400), None),
        (JOB | v1("memory/job", 9223372036854771712, 400) | v1("memory", 1000, 400), 600),
        (AB | v2("a/b/", "many", 400), None),
    ],
    ids=[
        *("v2", "v2-unused-files", "v2-max", "v2-parent", "v2-fullest", "v2-overdrawn"),
        *("v2-no-usage", "v2-no-stat", "v1", "v1-unlimited", "v1-parent", "nonsense"),
    ],
)
def test_the_fullest_cgroup_counts(server, files, quota):
    assert memory_quota(server(files)) == quota


def test_the_name_of_the_processor_and_the_free_memory_are_read(server):
    assert processor_name(server({})) == os.uname().machine
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other",
        "proc/meminfo": "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 3 kB",
    }
    assert processor_name(server(files)) == "AMD EPYC"
    assert free_memory(server(files)) == 3072
    for text in ("", "MemAvailable: x"):
        assert free_memory(server({"proc/meminfo": text})) > 0


def test_this_machine_can_be_read():
    topology = read_topology()
    assert topology.cores == os.sched_getaffinity(0)
    for parts in (topology.nodes, topology.siblings):
        assert sorted(core for part in parts for core in part) == sorted(topology.cores)
    assert free_memory() > 0
    assert memory_quota() is None or memory_quota() >= 0
