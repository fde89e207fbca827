from dataclasses import replace

import pytest

from hogbatch.policy.base import PolicySettings, WorkerView
from hogbatch.policy.fixed import Fixed, Hogbatch

CPU = WorkerView("cpu", teams=2, smallest=4, largest=64)
GPU = WorkerView("gpu", teams=1, smallest=256, largest=4096)


@pytest.mark.parametrize(
    ("policy", "cpu", "gpu"), [(Fixed, 4, 256), (Hogbatch, 4, 4096)], ids=["fixed", "hogbatch"]
)
def test_a_size_is_chosen_once_and_never_changed(policy, cpu, gpu):
    policy = policy(PolicySettings(alpha=8.0))
    for worker, size in ((CPU, cpu), (GPU, gpu)):
        assert policy.first_size(worker) == size
        for updates in (0, 100, 200):
            working = replace(worker, batch_size=size, updates=updates)
            assert policy.next_size(working, [replace(GPU, updates=100)]) == size
