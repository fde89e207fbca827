"""A GPU worker for which the host's memory cannot be pinned: slower, and nothing else."""

import pytest
from numpy.testing import assert_allclose

from hogbatch.kernels.gpu.device import HostDevice
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, SPARSE, WIDE, Rehearsal, epochs
from tests.support.limited_devices import Unpinned


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    """Every engine measures its device."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))


@pytest.mark.parametrize("data", [{}, SPARSE, WIDE], ids=["dense", "sparse", "wide"])
def test_memory_that_cannot_be_pinned_is_said_once_and_training_goes_on(data, caplog):
    trained = []
    for device in (HostDevice(), Unpinned()):
        caplog.clear()
        rig = Rehearsal(assignment(examples(ROWS, **data), optimizer="adagrad"), device=device)
        reports = rig.do(*epochs(2))
        assert sum(done.rows for done in reports) == 2 * ROWS
        trained.append(rig.given.model.params)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["shared memory cannot be pinned: pulls and merges are slower"]
    assert_allclose(trained[1], trained[0], atol=1e-6)
