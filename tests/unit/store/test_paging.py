import os
import time

import numpy as np
import pytest

from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, single_labels
from hogbatch.data.order import Window
from hogbatch.machine.linux import file_pages
from hogbatch.store import dataset
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.layout import arrange
from hogbatch.store.paging import ReadAhead, limit_pages
from hogbatch.store.segment import Segment

MIB = 1 << 20


def test_the_pages_of_a_process_stay_below_two_windows(tmp_path):
    """Found: pages that are never unmapped, and values that change when they are."""
    numbers = np.arange(16 * MIB, dtype=np.int32)
    layout = arrange({"n": ("<i4", numbers.shape)})
    segment = Segment.on_disk(tmp_path, layout, Window(1, 1, 4 * MIB))
    segment.write("n", 0, numbers)
    before = file_pages()
    limit_pages(segment)
    for part in np.array_split(segment.array("n"), 64):
        assert int(part.sum(dtype=np.int64)) == (int(part[0]) + int(part[-1])) * len(part) // 2
        deadline = time.monotonic() + 10
        while file_pages() > before + 16 * MIB and time.monotonic() < deadline:
            time.sleep(0.01)
        assert file_pages() <= before + 16 * MIB  # of 64
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
    layout, window = arrange(dataset.fields({"train": train})), Window(4, 8, 8 * 4 * width)
    segment = Segment.on_disk(tmp_path, layout, window)
    dataset.fill(segment, {"train": train})
    asked = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *given: asked.append(given))
    own = dataset.train_of(segment, width)
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
