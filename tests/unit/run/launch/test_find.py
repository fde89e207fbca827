import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import Gpu, ProbeResult
from hogbatch.machine.topology import Topology
from hogbatch.run.launch import find
from hogbatch.run.launch.find import check_workers, find_workers

CPU = WorkerRequest("cpu", threads=2)
HOST = WorkerRequest("gpu", ordinal="host")
A100, H200 = Gpu(0, "A100", 2**36), Gpu(1, "H200", 2**37)


def gpu(ordinal):
    return WorkerRequest("gpu", ordinal=ordinal)


@pytest.fixture
def server(monkeypatch):
    """Simulates a server with the given cores and GPUs; returns the list of its GPU probes."""

    def make(*gpus, cores=4, smt=1, quota=None, reason=None):
        probes = []

        def find_gpus():
            probes.append(ProbeResult(gpus, reason))
            return probes[-1]

        monkeypatch.setattr(find, "find_gpus", find_gpus)
        mask = frozenset(range(cores))
        siblings = tuple(frozenset(range(core, core + smt)) for core in range(0, cores, smt))
        topology = Topology(mask, (mask,), siblings, quota)
        monkeypatch.setattr(find, "read_topology", lambda: topology)
        return probes

    return make


def test_auto_takes_all_cores_and_reports_why_there_is_no_gpu(server):
    server(cores=3, reason="the GPU probe failed: it crashed")
    found = find_workers()
    assert found.workers == (WorkerRequest("cpu", threads=3),)
    assert found.line == "workers: cpu:3 (no GPU: the GPU probe failed: it crashed)"


def test_auto_takes_no_more_cores_than_the_cgroup_grants(server):
    server(cores=16, quota=2.5, reason="no driver")
    found = find_workers()
    assert found.workers == (WorkerRequest("cpu", threads=3),)
    assert found.line == "workers: cpu:3 (no GPU: no driver; the cgroup grants 2.5 of 16 cores)"


def test_auto_takes_one_thread_on_each_physical_core(server):
    server(A100, cores=16, smt=2)
    found = find_workers()
    assert found.workers == (WorkerRequest("cpu", threads=8), gpu(0))
    assert found.line == "workers: cpu:8,gpu:0 (gpu:0 is A100; one thread on each of 8 cores)"


@pytest.mark.parametrize(("cores", "threads"), [(16, 14), (3, 1), (2, 1), (1, 1)])
def test_auto_takes_every_gpu_and_leaves_a_core_for_each(server, cores, threads):
    server(A100, H200, cores=cores)
    found = find_workers()
    assert found.workers == (WorkerRequest("cpu", threads=threads), gpu(0), gpu(1))
    assert found.line == f"workers: cpu:{threads},gpu:0,gpu:1 (gpu:0 is A100; gpu:1 is H200)"


def test_a_missing_gpu_is_a_usage_error(server):
    server(A100)
    with pytest.raises(UsageError, match=r"--workers gpu:7: no such GPU \(gpu:0\); omit it"):
        check_workers((CPU, gpu(0), gpu(7)))


def test_without_any_gpu_the_error_gives_the_reason(server):
    server(reason="CuPy is not installed")
    with pytest.raises(UsageError, match=r"gpu:7: no such GPU \(CuPy is not installed\)"):
        check_workers((gpu(7),))


def test_available_workers_are_taken_as_requested(server):
    probes = server(A100)
    found = check_workers((CPU, gpu(0), HOST))
    assert found.workers == (CPU, gpu(0), HOST)
    assert found.line == "workers: cpu:2,gpu:0,gpu:host"
    assert len(probes) == 1


def test_gpus_are_probed_only_if_requested(server):
    probes = server(reason="no driver")
    assert check_workers((CPU, HOST)).workers == (CPU, HOST)
    assert probes == []
