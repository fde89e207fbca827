import errno
import os
import stat

import pytest

from hogbatch.machine.files import TEMPORARY_SUFFIX, write_directory
from tests.support.descriptors import open_descriptors

CHUNKS = [b"first", memoryview(b" second")]
CONTENT = {"one": CHUNKS, "two": []}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "000001"


@pytest.fixture
def calls(monkeypatch):
    """The calls that determine which data survives a power failure, in order."""
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "rename")}

    def fsync(descriptor):
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        calls.append(("sync", "unfinished" if name.endswith(TEMPORARY_SUFFIX) else name * folder))
        real["fsync"](descriptor)

    def rename(source, target):
        calls.append(("rename", os.path.basename(target)))
        real["rename"](source, target)

    for each in (fsync, rename):
        monkeypatch.setattr(os, each.__name__, each)
    return calls


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


class TestWriteDirectory:
    def test_the_directory_has_the_files_and_is_the_users_alone(self, path):
        before = open_descriptors()
        write_directory(path, CONTENT)
        assert open_descriptors() <= before
        assert contents(path) == {"one": b"first second", "two": b""}
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert list(path.parent.iterdir()) == [path]

    def test_content_reaches_the_disk_before_its_name_does(self, path, calls):
        write_directory(path, CONTENT)
        end = [("sync", "unfinished"), ("rename", path.name), ("sync", path.parent.name)]
        assert calls == [("sync", ""), ("sync", ""), *end]

    @pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
    def test_a_failure_leaves_nothing(self, path, monkeypatch, call):
        def fail(*arguments):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, call, fail)
        with pytest.raises(OSError, match="Input/output error"):
            write_directory(path, CONTENT)
        assert list(path.parent.iterdir()) == []

    def test_what_is_there_is_not_replaced(self, path):
        write_directory(path, CONTENT)
        with pytest.raises(OSError, match="Directory not empty"):
            write_directory(path, {"one": [b"other"]})
        with pytest.raises(FileNotFoundError):
            write_directory(path.parent / "missing" / "000002", CONTENT)
        assert contents(path) == {"one": b"first second", "two": b""}
        assert list(path.parent.iterdir()) == [path]
