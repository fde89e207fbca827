"""Detection of the cores and GPUs of this server."""

from hogbatch.config.values import WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import find_gpus
from hogbatch.machine.linux import read_topology
from hogbatch.machine.topology import training_threads

Found = tuple[tuple[WorkerRequest, ...], str]  # workers, and one line about them and the devices


def find_workers() -> Found:
    """A worker for each GPU, and one for the cores that affinity mask and cgroup allow."""
    topology, gpus = read_topology(), find_gpus()
    cores = len(topology.siblings)
    threads = training_threads(topology.threads, cores, len(gpus.devices))
    requests = [WorkerRequest("cpu", threads=threads)]
    requests += [WorkerRequest("gpu", ordinal=gpu.ordinal) for gpu in gpus.devices]
    seen = [f"gpu:{gpu.ordinal} is {gpu.name}" for gpu in gpus.devices]
    seen = seen or [f"no GPU: {gpus.reason}"]
    if topology.quota is not None and topology.threads < len(topology.cores):
        seen.append(f"the cgroup grants {topology.quota:g} of {len(topology.cores)} cores")
    if threads == cores < len(topology.cores):
        seen.append(f"one thread on each of {cores} cores")
    return tuple(requests), f"{_listed(requests)} ({'; '.join(seen)})"


def check_workers(requests: tuple[WorkerRequest, ...]) -> Found:
    """The requested workers; UsageError if one needs a GPU that does not exist."""
    wanted = [r for r in requests if r.device == "gpu" and r.ordinal != "host"]
    if wanted:
        gpus = find_gpus()
        available = [gpu.ordinal for gpu in gpus.devices]
        for request in wanted:
            if request.ordinal not in available:
                usable = ", ".join(f"gpu:{ordinal}" for ordinal in available) or gpus.reason
                raise UsageError(
                    f"--workers {request}: no such GPU ({usable}); "
                    "omit it, or use gpu:host to run a GPU worker on the CPU"
                )
    return requests, _listed(requests)


def _listed(requests: list[WorkerRequest] | tuple[WorkerRequest, ...]) -> str:
    return f"workers: {','.join(map(str, requests))}"
