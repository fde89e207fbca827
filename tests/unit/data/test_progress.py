import gzip
import io
import os
import threading

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.cache import DataCache
from hogbatch.data.progress import CountedFile, ReadProgress
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.source import opened

LINE = "1 1:0.5 3:1\n"


class Watched(ReadProgress):
    """Remembers which files were read, and how far."""

    def __init__(self):
        super().__init__()
        self.read = []
        self.fractions = []

    def add(self, count):
        super().add(count)
        if (fraction := self.fraction) is not None:
            self.fractions.append(fraction)

    def end(self):
        if self.name:
            self.read.append((self.name, self.size, self.done))
        super().end()


@pytest.fixture
def progress():
    return Watched()


@pytest.fixture
def large(tmp_path):
    """A file of several blocks."""
    path = tmp_path / "large.svm"
    path.write_text(LINE * (3 * text.BLOCK_BYTES // len(LINE)))
    return path


def test_a_plain_file_is_counted_once_although_it_is_read_twice(large, progress):
    read_as(large, ReadOptions(progress=progress))
    ((name, size, done),) = progress.read
    assert (name, size) == (str(large), large.stat().st_size)
    assert size <= done <= size + 3 * text.BLOCK_BYTES, "the first lines are read more often"
    assert progress.fractions[-1] == 1.0 and any(f < 0.9 for f in progress.fractions)
    assert progress.fraction is None, "after reading"


def test_a_compressed_file_is_measured_in_compressed_bytes(tmp_path, progress):
    path = tmp_path / "x.svm.gz"
    path.write_bytes(gzip.compress(LINE.encode() * 10_000))
    read_as(path, ReadOptions(progress=progress))
    ((_, size, done),) = progress.read
    assert size == path.stat().st_size <= done


def test_arrays_are_counted(tmp_path, progress):
    path = tmp_path / "x.npz"
    np.savez(path, X=np.ones((1000, 50)), y=np.arange(1000) % 2)
    read_as(path, ReadOptions(progress=progress))
    ((_, size, done),) = progress.read
    assert size <= done


def test_rows_from_the_cache_have_no_progress(large, tmp_path, progress):
    os.utime(large, (1e9, 1e9))
    cache = DataCache(tmp_path / "cache", min_parse_s=0.0)
    read_as(large, ReadOptions(progress=progress), cache)
    assert len(progress.read) == 1
    read_as(large, ReadOptions(progress=progress), cache)
    assert len(progress.read) == 1 and progress.fraction is None


def test_a_pipe_has_bytes_but_no_fraction(tmp_path, progress):
    path, content = tmp_path / "pipe", LINE.encode() * 1000
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    with opened(path, progress):
        assert (progress.name, progress.size, progress.done) == (str(path), None, len(content))
        assert progress.fraction is None
    writer.join()


def test_every_way_to_read_is_counted(tmp_path, progress):
    path = tmp_path / "x"
    path.write_bytes(b"12345678")
    progress.begin("x", 8)
    with io.BufferedReader(CountedFile(path, progress), 4) as file:
        assert file.read(2) == b"12" and file.readinto(bytearray(3)) == 3
        assert file.read() == b"678"
    assert progress.done == 8
