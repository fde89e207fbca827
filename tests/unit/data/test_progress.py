import io

import numpy as np
import pytest

from hogbatch.data import text
from hogbatch.data.progress import CountedFile, ReadProgress
from hogbatch.data.source import opened
from tests.support.reading import packed, read

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


def test_a_file_is_counted_once_though_it_is_read_twice_and_not_if_it_is_cached(
    old_file, cache, progress, monkeypatch
):
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 20)
    path = old_file("large.svm", LINE * (3 * text.BLOCK_BYTES // len(LINE)))
    read(path, cache, progress=progress)
    ((name, size, done),) = progress.read
    assert (name, size) == (str(path), path.stat().st_size)
    assert size <= done <= size + 3 * text.BLOCK_BYTES, "the first lines are read more often"
    assert progress.fractions[-1] == 1.0 and any(f < 0.9 for f in progress.fractions)
    assert progress.fraction is None, "after reading"
    read(path, cache, progress=progress)
    assert len(progress.read) == 1 and progress.fraction is None


def test_compressed_bytes_arrays_and_pipes_are_counted(write, tmp_path, progress, pipe):
    np.savez(tmp_path / "x.npz", X=np.ones((1000, 50)), y=np.arange(1000) % 2)
    packed_file = write("x.svm.gz", packed("x.svm.gz", LINE * 10_000))
    for path in (packed_file, tmp_path / "x.npz"):
        read(path, progress=progress)
        _, size, done = progress.read[-1]
        assert size == path.stat().st_size <= done
    path = pipe("pipe", LINE.encode(), times=1000)
    with opened(path, progress):
        assert (progress.name, progress.size, progress.done) == (str(path), None, 1000 * len(LINE))
        assert progress.fraction is None


def test_every_way_to_read_is_counted(write, progress):
    path = write("x", b"123456789abc")
    progress.begin("x", 12)
    with io.BufferedReader(CountedFile(path, progress), 4) as file:
        assert file.read(2) == b"12" and file.readinto(bytearray(3)) == 3
        assert file.read() == b"6789abc"
    assert progress.done == 12
