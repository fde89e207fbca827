import ctypes
import errno
import os
import threading

import numpy as np
import pytest

from hogbatch.store import pages
from hogbatch.store.layout import HUGE_PAGE, Layout, stripes
from hogbatch.store.segment import Segment

SIZE = 3 * HUGE_PAGE + 4096


@pytest.fixture
def memfd():
    fd = os.memfd_create("hogbatch-test")
    os.ftruncate(fd, SIZE)
    yield fd
    os.close(fd)


def taken(fd):
    """Bytes of memory allocated for `fd`."""
    return os.fstat(fd).st_blocks * 512


def huge(memory):
    """Bytes of a mapping in huge pages, according to /proc."""
    start = f"{memory.ctypes.data:x}-"
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if line.startswith(start):
                break
        return next(1024 * int(line.split()[1]) for line in lines if "ShmemPmdMapped" in line)


def test_stripes_are_dealt_in_turn_and_cover_everything():
    assert stripes(SIZE, 2) == [
        [(0, HUGE_PAGE), (2 * HUGE_PAGE, HUGE_PAGE)],
        [(HUGE_PAGE, HUGE_PAGE), (3 * HUGE_PAGE, 4096)],
    ]
    assert stripes(4096, 3) == [[(0, 4096)], [], []]


def test_each_node_s_stripes_are_taken_by_a_thread_on_its_cores(memfd, monkeypatch):
    pinned, calls = {}, []
    take = os.posix_fallocate

    def fallocate(fd, offset, length):
        take(fd, offset, length)
        calls.append((pinned[threading.get_ident()], offset))

    def pin(pid, cores):
        pinned[threading.get_ident()] = cores

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    monkeypatch.setattr(os, "sched_setaffinity", pin)
    pages.allocate(memfd, SIZE, [frozenset({0, 1}), frozenset({2})])
    assert sorted(calls, key=lambda call: call[1]) == [
        (frozenset({0, 1}), 0),
        (frozenset({2}), HUGE_PAGE),
        (frozenset({0, 1}), 2 * HUGE_PAGE),
        (frozenset({2}), 3 * HUGE_PAGE),
    ]
    assert taken(memfd) == SIZE
    assert threading.get_ident() not in pinned


def test_too_little_memory_on_one_node_is_an_error(memfd, monkeypatch):
    take = os.posix_fallocate

    def fallocate(fd, offset, length):
        if offset:
            raise OSError(errno.ENOSPC, "full")
        take(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    one = frozenset([min(os.sched_getaffinity(0))])
    with pytest.raises(OSError, match="full"):
        pages.allocate(memfd, SIZE, [one, one])


class CountedMappings:
    """The functions of libc, and how many bytes they have mapped."""

    def __init__(self, libc):
        self._libc, self.mapped, self.madvise = libc, 0, libc.madvise

    def mmap(self, address, size, *others):
        found = self._libc.mmap(address, size, *others)
        if address is None and found != pages.MAP_FAILED:  # else in the place of others
            self.mapped += size
        return found

    def munmap(self, address, size):
        assert self._libc.munmap(address, size) == 0
        self.mapped -= size
        return 0


def test_nothing_but_the_mapping_itself_is_left_mapped(memfd, monkeypatch):
    counted = CountedMappings(pages._libc)
    monkeypatch.setattr(pages, "_libc", counted)
    memory = pages.map_shared(memfd, SIZE, writable=True)
    assert counted.mapped == SIZE
    del memory
    assert counted.mapped == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        pages.map_shared(-1, SIZE, writable=True)
    assert counted.mapped == 0


def test_mappings_start_where_a_huge_page_may_and_one_for_reading_can_never_be_written(memfd):
    *mapped, memory = (pages.map_shared(memfd, SIZE, writable=n < 2) for n in range(3))
    assert [each.ctypes.data % HUGE_PAGE for each in (*mapped, memory)] == [0, 0, 0]
    mapped[0][:] = 7
    assert mapped[1].tobytes() == memory.tobytes() == bytes([7]) * SIZE
    assert not memory.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        memory.flags.writeable = True


def test_a_segment_lies_in_huge_pages_for_all_who_map_it(monkeypatch):
    collapsed = []
    monkeypatch.setattr(
        "hogbatch.store.segment.collapse",
        lambda memory: collapsed.append(pages.collapse(memory)),
    )
    segment = Segment.create("test", Layout((), SIZE))
    if collapsed == [False]:
        pytest.skip("this kernel gives no huge pages for shared memory now")
    assert collapsed == [True]
    other = Segment.attach(os.dup(segment.fd), segment.layout, writable=False)
    assert np.count_nonzero(other.memory) == 0
    segment.memory[::4096] = 1
    assert huge(segment.memory) == huge(other.memory) == 3 * HUGE_PAGE
    assert taken(segment.fd) == SIZE
    other.close()
    segment.close()


def test_a_kernel_that_gives_no_huge_pages_does_no_harm(memfd, monkeypatch):
    monkeypatch.setattr(pages, "MADV_COLLAPSE", 9999)
    assert pages.collapse(pages.map_shared(memfd, SIZE, writable=True)) is False


def test_inaccessible_memory_cannot_be_written_by_address(memfd):
    """With process_vm_writev(2), as another process would; other mappings keep the contents."""
    other, memory = (pages.map_shared(memfd, SIZE, writable=True) for _ in range(2))
    source = np.full(100, 7, np.uint8)
    ends = [(ctypes.c_size_t * 2)(each.ctypes.data, 100) for each in (source, memory)]
    libc = ctypes.CDLL(None, use_errno=True)

    def write():
        one = ctypes.c_ulong(1)
        return libc.process_vm_writev(os.getpid(), ends[0], one, ends[1], one, ctypes.c_ulong(0))

    if write() == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        pytest.skip("this process may not use process_vm_writev")
    assert (other[:100] == 7).all()
    pages.make_inaccessible(memory)
    source[:] = 9
    assert write() == -1
    assert ctypes.get_errno() == errno.EFAULT
    assert (other[:100] == 7).all()
