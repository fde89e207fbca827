import secrets

import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.machine.topology import Topology
from hogbatch.run.launch import claims
from hogbatch.run.launch.claims import pinning

ONE = WorkerRequest("cpu", threads=1)
TWO = WorkerRequest("cpu", threads=2)
GPU = WorkerRequest("gpu", ordinal=0)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    """A server with four cores, and claim names that no other process uses."""
    mask = frozenset(range(4))
    topology = Topology(mask, (mask,), tuple(frozenset({core}) for core in mask))
    monkeypatch.setattr(claims, "read_topology", lambda: topology)
    monkeypatch.setattr(claims, "NAME", f"\0hogbatch-test-{secrets.token_hex(8)}-")


def test_cpu_workers_get_cores_of_their_own_and_gpu_workers_none():
    with pinning([TWO, GPU, TWO]) as cores:
        assert cores == [(0, 1), (), (2, 3)]


def test_a_core_is_left_for_a_gpu_worker_if_there_are_enough():
    with pinning([TWO, GPU]) as cores:
        assert cores == [(0, 1), ()]
        with pinning([ONE]) as others, pinning([ONE]) as none_left:
            assert (others, none_left) == ([(3,)], [()])
    with pinning([ONE, ONE, ONE]) as cores:
        assert all(cores)


def test_a_second_run_gets_the_remaining_cores():
    with pinning([TWO]), pinning([TWO]) as cores:
        assert cores == [(2, 3)]


def test_a_run_with_too_few_free_cores_is_not_pinned_and_claims_none():
    with pinning([TWO]), pinning([TWO, TWO]) as unpinned, pinning([TWO]) as cores:
        assert unpinned == [(), ()]
        assert cores == [(2, 3)]


def test_cores_are_free_again_when_the_run_is_over():
    with pinning([TWO, TWO]):
        pass
    with pinning([TWO, TWO]) as cores:
        assert cores == [(0, 1), (2, 3)]


def test_cores_are_free_again_when_the_run_has_failed():
    with pytest.raises(KeyError), pinning([TWO, TWO]):
        raise KeyError
    with pinning([TWO]) as cores:
        assert cores == [(0, 1)]
