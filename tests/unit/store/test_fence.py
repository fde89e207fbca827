import numpy as np
import pytest

from hogbatch.store.fence import GENERATION, MAX_WORKERS, Fences
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment


@pytest.fixture
def segment():
    segment = Segment.create("shared", arrange({"x": ("u1", (1,)), **Fences.fields()}))
    yield segment
    segment.close()


def test_revoking_changes_the_fence_of_one_worker_alone(segment):
    fences = Fences.of(segment)
    assert (fences.revoke(3), fences.revoke(3)) == (1, 2)
    assert [fences.current(worker) for worker in (2, 3, 4)] == [0, 2, 0]


def test_a_worker_sees_in_its_line_that_it_was_revoked(segment):
    line = Fences.of(segment).line(MAX_WORKERS - 1)
    Fences.of(segment).revoke(MAX_WORKERS - 1)
    assert line[GENERATION] == 1


def test_each_worker_has_a_cache_line_to_itself(segment):
    lines = Fences.of(segment).lines
    assert lines.shape == (MAX_WORKERS, 8)
    assert lines.dtype == np.int64
    assert lines.ctypes.data % 64 == 0
    assert lines.strides[0] == 64
