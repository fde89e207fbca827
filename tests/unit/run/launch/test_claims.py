import os
import secrets
import subprocess
from contextlib import ExitStack

import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.machine.topology import Topology
from hogbatch.run.launch import claims
from hogbatch.run.launch.claims import pinning
from hogbatch.run.launch.local import LEAVE_WITHIN_S, LocalLauncher
from hogbatch.run.processes import launched_workers
from tests.support.other_user import as_root, start_as_nobody

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
    with pinning([TWO, GPU]) as cores, pinning([ONE]) as others, pinning([ONE]) as none_left:
        assert (cores, others, none_left) == ([(0, 1), ()], [(3,)], [()])


def test_a_run_with_too_few_free_cores_is_not_pinned_and_claims_none():
    with pytest.raises(KeyError), pinning([TWO, TWO]):
        raise KeyError  # after which they are free again
    with pinning([TWO]), pinning([TWO, TWO]) as unpinned, pinning([TWO]) as cores:
        assert unpinned == [(), ()]
        assert cores == [(2, 3)]


@pytest.mark.parametrize("pin", [True, False])
def test_workers_are_started_on_the_cores_claimed_for_them(monkeypatch, tmp_path, pin):
    started, stopped = [], []
    monkeypatch.setattr(LocalLauncher, "start", lambda self, *given: started.append(given))
    monkeypatch.setattr(LocalLauncher, "stop", lambda self, patience_s: stopped.append(patience_s))
    with launched_workers((TWO, GPU), tmp_path, pin):
        assert not stopped
    assert started == [(TWO, tmp_path, (0, 1) if pin else ()), (GPU, tmp_path, ())]
    with pytest.raises(KeyError), launched_workers((TWO,), tmp_path, pin):
        raise KeyError
    assert stopped == [LEAVE_WITHIN_S, 0.0]


CLAIM = """
import os, socket, sys
claim = socket.socket(socket.AF_UNIX)
claim.bind("\\0" + sys.argv[1])
if sys.argv[3] == "listening":
    claim.listen()
if sys.argv[2]:
    os.sched_setaffinity(0, {int(sys.argv[2])})
print(flush=True)
sys.stdin.read()
"""


@as_root
@pytest.mark.parametrize("socket", ["listening", "only bound"])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_claim_of_another_user_counts_if_a_thread_is_pinned(caplog, pinned, socket):
    core = min(os.sched_getaffinity(0))
    name = f"{claims.NAME[1:]}{core}"
    other = start_as_nobody(CLAIM, name, str(core) if pinned else "", socket, stdin=subprocess.PIPE)
    with other:
        other.stdout.readline()
        with pinning([ONE, ONE, ONE, ONE]) as cores:
            pass
        other.stdin.close()
    assert cores == ([()] * 4 if pinned else [(0,), (1,), (2,), (3,)])
    warned = f"cores {core}: another user claims them, but has pinned no thread to them"
    assert (warned in caplog.text) is not pinned


def test_a_core_of_a_run_that_ends_meanwhile_is_claimed_without_a_warning(monkeypatch, caplog):
    owner, earlier = claims._owner, ExitStack()
    earlier.enter_context(pinning([ONE]))

    def owner_after_the_end(core):
        earlier.close()
        return owner(core)

    monkeypatch.setattr(claims, "_owner", owner_after_the_end)
    with pinning([TWO]) as cores, pinning([TWO, ONE]) as unpinned:
        assert (cores, unpinned, caplog.text) == ([(0, 1)], [(), ()], "")


def test_the_owner_of_a_claim_is_known_after_many_runs_were_started():
    with pinning([ONE]):
        assert {claims._owner(0) for _ in range(200)} == {os.getuid()}
