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
BOTH = (A100, H200)


def gpu(ordinal):
    return WorkerRequest("gpu", ordinal=ordinal)


@pytest.fixture
def server(monkeypatch):
    """Simulates a server with the given cores and GPUs; returns the list of its GPU probes."""

    def make(gpus=(), cores=4, smt=1, quota=None, reason=None):
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


@pytest.mark.parametrize(
    ("given", "workers", "why"),
    [
        ({"cores": 3, "reason": "it crashed"}, "cpu:3", "no GPU: it crashed"),
        (
            {"cores": 16, "quota": 2.5, "reason": "no driver"},
            "cpu:3",
            "no GPU: no driver; the cgroup grants 2.5 of 16 cores",
        ),
        (
            {"gpus": (A100,), "cores": 16, "smt": 2},
            "cpu:8,gpu:0",
            "gpu:0 is A100; one thread on each of 8 cores",
        ),
        *(  # a core is left for each GPU
            (
                {"gpus": BOTH, "cores": cores},
                f"cpu:{threads},gpu:0,gpu:1",
                "gpu:0 is A100; gpu:1 is H200",
            )
            for cores, threads in ((16, 14), (3, 1), (2, 1), (1, 1))
        ),
    ],
)
def test_auto_takes_every_gpu_and_a_thread_per_core(server, given, workers, why):
    server(**given)
    found, line = find_workers()
    assert ",".join(map(str, found)) == workers
    assert line == f"workers: {workers} ({why})"


def test_a_missing_gpu_is_a_usage_error(server):
    for given, why in (({"gpus": (A100,)}, "gpu:0"), ({"reason": "no CuPy"}, "no CuPy")):
        server(**given)
        with pytest.raises(UsageError, match=rf"--workers gpu:7: no such GPU \({why}\); omit it"):
            check_workers((CPU, gpu(7)))


@pytest.mark.parametrize(("requests", "probes"), [((CPU, gpu(0), HOST), 1), ((CPU, HOST), 0)])
def test_available_workers_are_taken_as_requested_and_gpus_probed_only_then(
    server, requests, probes
):
    made = server((A100,))
    line = f"workers: {','.join(map(str, requests))}"
    assert check_workers(requests) == (requests, line) and len(made) == probes
