"""The gradient noise that a GPU worker measures, with the optimizer slots of its device."""

import pytest
from numpy.testing import assert_allclose

from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.workers import noise
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, Rehearsal, lease

pytestmark = pytest.mark.gpu


def test_it_is_that_of_a_worker_on_the_host(make_cuda, monkeypatch, tmp_path):
    """The slots are copied by a thread with a stream of its own, while the device may train."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    monkeypatch.setattr(noise, "LARGEST_COST", 1e9)
    found = []
    for device in (HostDevice(), make_cuda()):
        rig = Rehearsal(assignment(examples(ROWS), optimizer="adagrad"), device=device)
        (done,) = rig.do(lease(stop=ROWS // 2))
        found.append(done.noise)
    assert found[0][0] > 0
    assert_allclose(*found, rtol=1e-3)
