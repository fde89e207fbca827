import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, single_labels
from hogbatch.data.order import Window
from hogbatch.store import dataset
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.layout import arrange
from hogbatch.store.paging import ReadAhead, unmap_regularly
from hogbatch.store.segment import Segment
from tests.support.fault_injection import wait_for

MIB = 1 << 20


def mapped_bytes(segment):
    """The bytes of a segment that this process has mapped."""
    start = f"{segment.memory.ctypes.data:x}-"
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.startswith(start) for line in lines)
    (size,) = (line.split()[1] for line in islice(lines, 25) if line.startswith("Rss:"))
    return 1024 * int(size)


def test_rows_that_were_read_are_unmapped_and_can_be_read_again(tmp_path):
    """Found: pages that are never unmapped, and values that change when they are."""
    numbers = np.arange(MIB, dtype=np.int32)
    layout = arrange({"n": ("<i4", numbers.shape)})
    segment = Segment.on_disk(tmp_path, layout, Window(1, 1, MIB))
    segment.write("n", 0, numbers)
    assert_array_equal(segment.array("n"), numbers)
    assert mapped_bytes(segment) > MIB
    unmap_regularly(segment)
    wait_for(lambda: mapped_bytes(segment) < MIB, "the pages are unmapped")
    assert_array_equal(segment.array("n"), numbers)
    wait_for(lambda: mapped_bytes(segment) < MIB, "the pages are unmapped again")
    segment.close()


@pytest.mark.parametrize("sparse", [False, True])
def test_two_windows_are_read_ahead_once(tmp_path, monkeypatch, sparse):
    """Found: blocks of another window, ranges of other arrays, and repeated requests."""
    rows, width = 40, 1024
    cells = np.ones((rows, width), np.float32)
    inputs = dense_inputs(cells)
    if sparse:
        indices = np.tile(np.arange(width, dtype=np.int32), rows)
        inputs = csr_inputs(np.arange(rows + 1) * width, indices, cells.reshape(-1))
    train = Examples(inputs, single_labels(np.zeros(rows, np.float32)), width)
    layout, window = arrange(dataset.fields({"train": train.sizes})), Window(4, 8, 8 * 4 * width)
    segment = Segment.on_disk(tmp_path, layout, window)
    dataset.fill(segment, [{"train": train}])
    asked = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *given: asked.append(given))
    own = dataset.sets_of(segment, width)["train"]
    ahead = ReadAhead(segment, EpochOrders(np.arange(rows)[::-1], np.arange(rows)), own)
    for start in (8, 9, 15):
        ahead.expect(0, start)
    fields = {field.name: field for field in segment.layout.fields}
    names = ["indices", "values"] if sparse else ["dense"]
    expected = {
        (
            fields[f"train/inputs/{name}"].offset + first * 4 * width,
            16 * width,
            os.POSIX_FADV_WILLNEED,
        )
        for name in names
        for first in (16, 20, 24, 28)
    }
    assert len(asked) == len(expected) and set(asked) == expected
    segment.close()
