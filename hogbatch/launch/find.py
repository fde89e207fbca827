"""What this server has to offer: cores and GPUs."""

from dataclasses import dataclass

from hogbatch.config.values import WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import find_gpus
from hogbatch.machine.linux import read_topology


@dataclass(frozen=True, slots=True)
class Found:
    """Workers to start, and one line that says what was found and what was left out and why."""

    workers: tuple[WorkerRequest, ...]
    line: str


def find_workers() -> Found:
    """All cores this process may use, as far as its cgroup lets it, and every GPU."""
    topology, gpus = read_topology(), find_gpus()
    requests = [WorkerRequest("cpu", threads=topology.threads)]
    requests += [WorkerRequest("gpu", ordinal=gpu.ordinal) for gpu in gpus.devices]
    seen = [f"gpu:{gpu.ordinal} is {gpu.name}" for gpu in gpus.devices]
    seen = seen or [f"no GPU: {gpus.reason}"]
    if topology.quota is not None and topology.threads < len(topology.cores):
        seen.append(f"the cgroup grants {topology.quota:g} of {len(topology.cores)} cores")
    return Found(tuple(requests), f"{_listed(requests)} ({'; '.join(seen)})")


def check_workers(requests: tuple[WorkerRequest, ...]) -> Found:
    """The workers asked for; UsageError if one wants a GPU that is not there."""
    wanted = [r for r in requests if r.device == "gpu" and r.ordinal != "host"]
    if wanted:
        gpus = find_gpus()
        there = [gpu.ordinal for gpu in gpus.devices]
        for request in wanted:
            if request.ordinal not in there:
                usable = ", ".join(f"gpu:{ordinal}" for ordinal in there) or gpus.reason
                raise UsageError(
                    f"--workers {request}: no such GPU ({usable}); "
                    "leave it out, or use gpu:host to rehearse on the CPU"
                )
    return Found(requests, _listed(requests))


def _listed(requests: list[WorkerRequest] | tuple[WorkerRequest, ...]) -> str:
    return f"workers: {','.join(map(str, requests))}"
