"""What this server has to offer: cores and GPUs."""

import os
from dataclasses import dataclass

from hogbatch.config import WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.kernels.gpu.probe import find_gpus


@dataclass(frozen=True, slots=True)
class Found:
    """Workers to start, and one line that says what was found and what was left out and why."""

    workers: tuple[WorkerRequest, ...]
    line: str


def find_workers() -> Found:
    """All cores this process may use, and every GPU."""
    cores, gpus = len(os.sched_getaffinity(0)), find_gpus()
    requests = [WorkerRequest("cpu", threads=cores)]
    requests += [WorkerRequest("gpu", ordinal=gpu.ordinal) for gpu in gpus.devices]
    seen = "; ".join(f"gpu:{gpu.ordinal} is {gpu.name}" for gpu in gpus.devices)
    return Found(tuple(requests), f"{_listed(requests)} ({seen or 'no GPU: ' + gpus.reason})")


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
