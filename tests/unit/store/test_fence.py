import numpy as np

from hogbatch.store.fence import GENERATION, MAX_WORKERS, Fences
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment


def test_a_worker_sees_in_its_own_cache_line_that_it_alone_was_revoked():
    segment = Segment.create("shared", arrange({"x": ("u1", (1,)), **Fences.fields()}))
    fences, line = Fences.of(segment), Fences.of(segment).line(MAX_WORKERS - 1)
    assert (fences.revoke(MAX_WORKERS - 1), fences.revoke(MAX_WORKERS - 1)) == (1, 2)
    assert line[GENERATION] == 2 and line.dtype == np.int64
    assert [fences.current(worker) for worker in (0, MAX_WORKERS - 2)] == [0, 0]
    assert fences.lines.ctypes.data % 64 == 0 and fences.lines.strides[0] == 64
    del fences, line
    segment.close()
