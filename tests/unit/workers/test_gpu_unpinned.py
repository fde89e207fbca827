"""A GPU worker for which host memory cannot be pinned: it is slower, but trains the same model."""

import pytest
from numpy.testing import assert_allclose

from hogbatch.kernels.gpu.device import HostDevice
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import ROWS, SPARSE, WIDE, Rehearsal, epochs
from tests.support.limited_devices import Unpinned


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    """Use an empty cache, so that every engine measures its device."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))


@pytest.mark.parametrize("data", [{}, SPARSE, WIDE], ids=["dense", "sparse", "wide"])
def test_unpinned_memory_is_logged_once_and_training_continues(data, caplog):
    trained = []
    for device in (HostDevice(), Unpinned()):
        caplog.clear()
        rig = Rehearsal(assignment(examples(ROWS, **data), optimizer="adagrad"), device=device)
        reports = rig.do(*epochs(2))
        assert sum(done.rows for done in reports) == 2 * ROWS
        trained.append(rig.given.model.params)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == ["shared memory cannot be pinned, so pulls and merges are slower"]
    assert_allclose(trained[1], trained[0], atol=1e-6)
