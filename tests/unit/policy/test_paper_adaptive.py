"""The rule of `adaptive`, case by case and in a closed loop."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.base import PolicySettings, WorkerView
from hogbatch.policy.paper_adaptive import PaperAdaptive
from tests.support.property_tests import max_examples

CPU = WorkerView("cpu", teams=2, smallest=4, largest=64, batch_size=16, updates=100)
GPU = WorkerView("gpu", teams=1, smallest=256, largest=4096, batch_size=1024, updates=100)


def others(*updates, device="gpu"):
    return [replace(GPU, device=device, updates=count) for count in updates]


@pytest.mark.parametrize(
    ("updates", "size"),
    [
        ([101], 8),  # behind
        ([99], 32),  # ahead
        ([100], 16),  # level
        ([99, 101], 16),  # between
        ([101, 200, 300], 8),  # behind all
        ([100, 200], 16),  # level with the last
        ([1, 2, 99], 32),  # ahead of all
        ([1, 100], 16),  # level with the first
        ([], 16),  # alone
    ],
)
def test_the_batch_depends_on_the_rank_among_the_others(updates, size):
    assert PaperAdaptive(PolicySettings()).next_size(CPU, others(*updates)) == size


@pytest.mark.parametrize(
    ("alpha", "size", "smaller", "larger"),
    [
        *((4, 16, 4, 64), (1.5, 16, 11, 24)),
        *((2, 4, 4, 8), (2, 5, 4, 10), (2, 33, 16, 64)),  # to a limit
        (1.1, 6, 5, 7),  # by at least one row
    ],
)
def test_alpha_is_the_factor(alpha, size, smaller, larger):
    policy, worker = PaperAdaptive(PolicySettings(alpha=alpha)), replace(CPU, batch_size=size)
    assert policy.next_size(worker, others(101)) == smaller
    assert policy.next_size(worker, others(99)) == larger


def test_beta_weights_only_the_updates_of_the_cpu():
    policy = PaperAdaptive(PolicySettings(beta=0.5))  # 100 on the CPU count 50
    assert policy.next_size(CPU, others(60)) == 8
    assert policy.next_size(CPU, others(40)) == 32
    assert policy.next_size(CPU, others(60, device="cpu")) == 32
    assert policy.next_size(GPU, others(150, device="cpu")) == 2048
    assert policy.next_size(GPU, others(150, device="gpu")) == 512


def test_a_cpu_worker_starts_with_its_largest_batch_and_a_gpu_worker_with_a_quarter():
    policy = PaperAdaptive(PolicySettings())
    assert policy.first_size(CPU) == 64
    assert policy.first_size(GPU) == 1024
    assert policy.first_size(replace(GPU, smallest=2000)) == 2000


@max_examples(100)
@given(
    alpha=st.floats(1.001, 100.0),
    limits=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)).map(sorted),
    fraction=st.floats(0, 1),
    updates=st.sampled_from([99, 100, 101]),
)
def test_a_batch_moves_the_right_way_or_is_at_its_limit(alpha, limits, fraction, updates):
    smallest, largest = limits
    size = smallest + round(fraction * (largest - smallest))
    worker = replace(CPU, smallest=smallest, largest=largest, batch_size=size, updates=updates)
    following = PaperAdaptive(PolicySettings(alpha=alpha)).next_size(worker, others(100))
    assert smallest <= following <= largest
    if updates < 100:
        assert following < size or size == smallest
    elif updates > 100:
        assert following > size or size == largest
    else:
        assert following == size
