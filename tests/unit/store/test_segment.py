import errno
import os
from pathlib import Path

import numpy as np
import pytest

from hogbatch.data.order import Window
from hogbatch.errors import ProtocolError, UsageError
from hogbatch.store.layout import Layout, arrange
from hogbatch.store.segment import Segment
from tests.support.descriptors import open_descriptors

LAYOUT = arrange({"a": ("<f4", (2, 3)), "empty": ("<i8", (0,)), "b": ("<i8", (4,))})


@pytest.fixture
def segment():
    segment = Segment.create("test", LAYOUT)
    yield segment
    segment.close()


def attached(segment, writable):
    return Segment.attach(os.dup(segment.fd), segment.layout, writable)


def test_a_device_can_pin_a_read_only_segment(segment):
    before = open_descriptors()
    worker = attached(segment, writable=False)
    mapping = worker.map_for_device()
    segment.array("a")[1, 1] = 4
    field = worker.layout.fields[0]
    assert mapping[field.offset : field.end].view("<f4")[4] == 4  # the same memory
    assert mapping.size == LAYOUT.size and mapping.flags.writeable
    assert mapping.ctypes.data % 4096 == 0
    worker.close()
    assert open_descriptors() <= before


@pytest.mark.parametrize("size", [0, 2 * LAYOUT.size])
def test_nobody_changes_the_size(segment, size):
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, size)


def test_descriptors_are_freed_once_and_the_mapping_with_the_last_view():
    before, maps = open_descriptors(), Path("/proc/self/maps")
    segment = Segment.create("last-view", LAYOUT)
    view = segment.array("b")
    segment.close()
    assert open_descriptors() <= before
    with open("/dev/null") as reused:
        segment.close()
        os.fstat(reused.fileno())
    assert "hogbatch-last-view" in maps.read_text()
    del view
    assert "hogbatch-last-view" not in maps.read_text()


def test_a_segment_smaller_than_its_layout_is_refused(segment):
    with pytest.raises(ProtocolError, match=r"expected a segment of 8192 bytes.*got 4096 bytes"):
        Segment.attach(segment.fd, Layout((), 8192), writable=True)


def test_more_than_the_free_memory_is_refused_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(os, "memfd_create", None)  # must not get that far
    with pytest.raises(UsageError, match=r"expected 1,000 TB.* data segment; got \d+"):
        Segment.create("data", Layout((), 10**15))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_memory_that_runs_out_while_it_is_taken_is_a_clear_error(monkeypatch, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    before = open_descriptors()
    with pytest.raises(UsageError, match="free memory for the data segment"):
        Segment.create("data", LAYOUT)
    assert open_descriptors() <= before


def test_the_kernel_has_taken_every_page(segment):
    assert os.fstat(segment.fd).st_blocks * 512 == LAYOUT.size
    assert np.count_nonzero(segment.memory) == 0


def test_a_segment_on_disk_has_what_was_written_and_leaves_nothing_behind(tmp_path):
    """Found: values at another offset after `shorten`, a file or a descriptor that remains."""
    before = open_descriptors()
    window = Window(1, 1, 100)
    segment = Segment.on_disk(tmp_path, arrange({"a": ("<f4", (9, 3)), "b": ("<i8", (7,))}), window)
    segment.write("a", 0, np.ones((1, 3), np.float32))
    segment.write("a", 1, np.full((1, 3), 2.0))
    segment.write("b", 2, np.arange(2))
    segment.shorten(arrange({"a": ("<f4", (2, 3)), "b": ("<i8", (4,))}))
    worker = Segment.attach(os.dup(segment.fd), segment.layout, False, window)
    for each in (segment, worker):
        assert each.array("a").tolist() == [[1] * 3, [2] * 3]
        assert each.array("b").tolist() == [0, 0, 0, 1]
        assert not each.array("a").flags.writeable
        assert each.read_only and each.window == window
    with pytest.raises(AssertionError, match="within b"):
        segment.write("b", 3, np.arange(2))
    segment.close()
    worker.close()
    assert open_descriptors() <= before and [*tmp_path.iterdir()] == []


def test_a_segment_on_disk_that_is_not_closed_is_freed(tmp_path):
    before = open_descriptors()
    Segment.on_disk(tmp_path, LAYOUT, Window(1, 1, 100))
    assert open_descriptors() <= before
